"""Both engines on the same numbers: models that try every pair of choices, and what each engine says."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from pellucid.base.errors import ConfigError
from pellucid.base.names import IGNORE_INDEX, describe
from pellucid.config import BIAS_PLACES, ModelConfig
from pellucid.engine.loss import loss
from pellucid.engine.taps import record
from pellucid.engine.transformer import Transformer
from pellucid.parts import Part, kinds
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from tests.reference.models import weights
from tests.small_choices import small

Choice = dict[str, Any]

SIZES = {"vocab_size": 7, "context_length": 8, "n_layer": 2, "n_head": 4, "d_model": 16, "d_ff": 10}
IDS = [[1, 3, 1, 5, 0], [0, 2, 4, 4, 6]]
TARGETS = [[3, IGNORE_INDEX, 5, 0, 2], [2, 4, 4, 6, 1]]
PADDINGS = {"none": None, "left": [[0, 0, 1, 1, 1], [1] * 5], "right": [[1] * 5, [1, 1, 1, 0, 0]]}

SEGMENTS = {"none": None, "packed": [[0, 0, 1, 1, 1], [0, 1, 1, 2, 2]]}

FAMILY = {
    entry.name: entry.type.family
    for entry in dataclasses.fields(ModelConfig)
    if isinstance(entry.type, type) and issubclass(entry.type, Part)
}
"""The family of each field of the config that holds a choice; a family may stand in several."""
FACTORS: dict[str, Sequence[Any]] = (
    {field: [small(family, kind) for kind in kinds(family)] for field, family in FAMILY.items()}
    | {"positions": [*kinds("positions"), {"kind": "rope", "layout": "pairs"}]}
    | {f"bias {place}": (False, True) for place in BIAS_PLACES}
    | {"n_kv_head": (0, 1, 2), "d_head": (0, 6), "padding": tuple(PADDINGS), "segments": tuple(SEGMENTS)}
)
"""Everything that can be chosen, found by listing the folders; a size of 0 is chosen by the config."""


def config_of(choice: Choice, sizes: Mapping[str, int] = SIZES) -> ModelConfig | None:
    """The model of a choice, or None where these choices do not go together."""
    biases = [place for place in BIAS_PLACES if choice.get(f"bias {place}")]
    inputs = ("padding", "segments")
    fields = {
        key: value for key, value in choice.items() if not key.startswith("bias ") and key not in inputs
    }
    try:
        return ModelConfig.from_dict({**sizes, **fields, "biases": biases})
    except ConfigError:
        return None


def pairwise(
    factors: Mapping[str, Sequence[Any]], possible: Callable[[Choice], object] = lambda choice: True
) -> Iterator[Choice]:
    """Rows that hold every possible pair of values at least once.

    Each row starts from the first pair still missing, and takes for every other factor the value that brings
    the most missing pairs; `possible` is asked of every row that is begun.
    """
    spots = [(name, i) for name, values in factors.items() for i in range(len(values))]
    missing = dict.fromkeys(pair for pair in itertools.combinations(spots, 2) if pair[0][0] != pair[1][0])
    order = {spot: at for at, spot in enumerate(spots)}

    def choice(row: Mapping[str, int]) -> Choice:
        return {name: factors[name][i] for name, i in row.items()}

    def brought(row: Mapping[str, int], name: str, i: int) -> int:
        return sum(tuple(sorted([(name, i), spot], key=order.__getitem__)) in missing for spot in row.items())

    while missing:
        row = dict(next(iter(missing)))
        if not possible(choice(row)):
            missing.pop(next(iter(missing)))
            continue
        for name, values in factors.items():
            if name not in row:
                best = sorted(range(len(values)), key=lambda i: -brought(row, name, i))
                row[name] = next(i for i in best if possible(choice({**row, name: i})))
        for pair in itertools.combinations(sorted(row.items(), key=order.__getitem__), 2):
            missing.pop(pair, None)
        yield choice(row)


def text(choice: Choice) -> str:
    """A choice as the name of a test: what differs from saying nothing."""
    kinds = {key: value["kind"] if isinstance(value, dict) else value for key, value in choice.items()}
    if isinstance(choice.get("positions"), dict):
        kinds["positions"] = "rope_pairs"
    return ",".join(f"{key.replace(' ', '_')}={value}" for key, value in kinds.items() if value)


COVER = list(pairwise(FACTORS, config_of))
CHOICES = {
    f"{field}/{kind}": ModelConfig.from_dict(SIZES | {field: small(family, kind)})
    for field, family in FAMILY.items()
    for kind in kinds(family)
}
"""One model for each file of `parts/` in each field that may hold it."""
DIFFERENT = {name: config for config, name in {config: name for name, config in CHOICES.items()}.items()}
"""The same, without those that choose what is chosen anyway."""
CACHED = {name: config for name, config in DIFFERENT.items() if not config.mask.bidirectional_prefix}
"""Those whose past stands still from the first token on, so that it can be kept."""


def fast(
    config: ModelConfig, seed: int = 0, dtype: torch.dtype = torch.float64, scale: float = 0.5
) -> Transformer:
    """The fast engine with random weights, by default in the specification's precision."""
    return Transformer.from_weights(config, weights(config, seed, scale), dtype=dtype)


def specified(
    config: ModelConfig,
    values: Mapping[str, Array],
    ids: Any,
    targets: Any,
    padding: Any,
    segments: Any = None,
    dropout: Mapping[str, Array] | None = None,
) -> Tape:
    """The specification, forward and backward, with what dropout kept."""
    tape = forward(config, values, ids, targets, padding=padding, segments=segments, dropout=dropout)
    tape.backward(tape.ref("loss"))
    return tape


class Runs:
    """A model with random weights on some ids: what each way of computing it gives, once it is asked for."""

    def __init__(
        self,
        config: ModelConfig,
        ids: Any = IDS,
        targets: Any = TARGETS,
        padding: Any = None,
        segments: Any = None,
        values: dict[str, Array] | None = None,
    ) -> None:
        self.config, self.inputs = config, (ids, targets, padding, segments)
        self.values = weights(config) if values is None else values

    @classmethod
    def of(cls, choice: Choice) -> "Runs":
        """Returns the runs of a choice of `FACTORS`, its padding and its segments among them."""
        config = config_of(choice)
        assert config
        return cls(config, padding=PADDINGS[choice["padding"]], segments=SEGMENTS[choice["segments"]])

    @functools.cached_property
    def model(self) -> Transformer:
        """The fast engine in float64; whoever changes it sets it back."""
        return Transformer.from_weights(self.config, self.values, dtype=torch.float64)

    @functools.cached_property
    def tape(self) -> Tape:
        """The specification, forward and backward, without dropout."""
        return specified(self.config, self.values, *self.inputs)

    @functools.cached_property
    def eager(self) -> dict[str, Array]:
        """Every value that the fast engine names; dropout draws."""
        return recorded(self.config, self.values, *self.inputs)

    @functools.cached_property
    def dropped_tape(self) -> Tape:
        """The specification with what dropout kept in `eager`."""
        kept = {name: value for name, value in self.eager.items() if name.endswith(".keep")}
        assert bool(kept) is bool(self.config.dropout.rates)
        return specified(self.config, self.values, *self.inputs, kept) if kept else self.tape

    @functools.cached_property
    def fused(self) -> dict[str, Array]:
        """Loss and gradients of the fast engine, which nothing watches."""
        return self.learn()

    def learn(self) -> dict[str, Array]:
        """Returns loss and gradients of the model as it now is."""
        self.model.zero_grad()
        value = run(self.model, *self.inputs)
        value.backward()
        found = {"loss": array(value), **gradients(self.model)}
        self.model.zero_grad()
        return found

    @functools.cached_property
    def logits(self) -> Array:
        """Logits of the fast engine without gradients."""
        ids, _, padding, segments = (
            None if given is None else torch.as_tensor(given) for given in self.inputs
        )
        with torch.no_grad():
            return array(self.model(ids, padding=padding, segments=segments))


def shared(tape: Tape) -> dict[str, Array]:
    """The values of a tape that the glossary marks for both engines, under every name they have."""
    names = [*tape.values, *tape.aliases]
    return {name: tape[name] for name in names if (entry := describe(name)) and entry.engines == "both"}


def recorded(
    config: ModelConfig,
    values: Mapping[str, Array],
    ids: Any,
    targets: Any,
    padding: Any,
    segments: Any = None,
    fused: bool = False,
) -> dict[str, Array]:
    """Every value that the fast engine names, forward and backward; its parameters and their gradients.

    Under a recording of every value it trains, so that dropout draws.
    """
    model = Transformer.from_weights(config, values, dtype=torch.float64).train(not fused)
    torch.manual_seed(0)
    with record(gradients=True, fused=fused) as seen:
        run(model, ids, targets, padding, segments).backward()
    return {**{name: array(value) for name, value in seen.items()}, **gradients(model), **model.weights()}


def run(
    model: Transformer, ids: Any, targets: Any, padding: Any = None, segments: Any = None
) -> torch.Tensor:
    """The loss of the fast engine."""
    real = None if padding is None else torch.tensor(padding)
    packed = None if segments is None else torch.tensor(segments)
    return loss(model(torch.tensor(ids), padding=real, segments=packed), torch.tensor(targets))


def gradients(model: Transformer) -> dict[str, Array]:
    return {f"d.{name}": array(p.grad) for name, p in model.named_parameters() if p.grad is not None}


def array(value: torch.Tensor) -> Array:
    """A tensor as the specification reads it."""
    return value.detach().double().cpu().numpy()

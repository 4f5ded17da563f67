"""Runs a model on token ids, records named values, and replaces some of them on the way.

runner = SpecificationRunner(config, weights)          # NumPy, float64
runner = EngineRunner(module)                          # PyTorch, in the type of the module
seen = runner.run([1, 3, 5], ["blocks.*.attn.pattern", "logits"])
seen = runner.run([1, 3, 5], ["logits"], [Patch("blocks.0.attn.head_out", 0.0, (slice(None), 2))])
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.base.dtypes import Array
from pellucid.base.errors import TokenError, UsageError
from pellucid.base.names import asks_for_heads
from pellucid.base.patterns import select
from pellucid.config import ModelConfig
from pellucid.formats.pretrained import LazyWeights
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward

if TYPE_CHECKING:
    from pellucid.engine.transformer import Transformer

from collections.abc import Callable
from functools import cached_property

from pellucid.text.tokenizer import Tokenizer

Values = Mapping[str, Array]
"""Recorded values by name, float64, with the axes of the glossary (`names.py`)."""
Index = tuple[int | slice | Array | None, ...]


@dataclass(frozen=True, eq=False)
class Patch:
    """Replaces the part `index` of the value `name` by `value`, which is broadcast to that part.

    The index has the axes of the value, the batch first; the default is the whole value.
    """

    name: str
    value: Array | float
    index: Index = ()

    def apply(self, array: Array) -> Array:
        """Returns a copy of the array with the part replaced."""
        changed = array.copy()
        changed[self.index] = self.value
        return changed


class Runner(ABC):
    """A model that can be run with recordings and patches; `weights` are float64 arrays by name."""

    config: ModelConfig
    weights: Mapping[str, Array]

    def run(self, ids: Any, record: Sequence[str], patches: Sequence[Patch] = ()) -> dict[str, Array]:
        """Returns the values whose names match a pattern of `record`, after the patches, each with a batch
        axis; `ids` are [T] or [B T]."""
        batch = np.atleast_2d(np.asarray(ids))
        if batch.ndim != 2 or not batch.size or batch.dtype.kind not in "iu":
            raise TokenError(f"ids must be whole numbers [T] or [B T], at least one; got {batch.shape}.")
        if batch.shape[1] > self.config.context_length:
            raise TokenError(
                f"{batch.shape[1]} tokens do not fit this model's context of {self.config.context_length}."
            )
        if batch.min() < 0 or batch.max() >= self.config.vocab_size:
            raise TokenError(f"ids go from 0 to {self.config.vocab_size - 1}.")
        return self._run(batch, tuple(record), _group(patches))

    @abstractmethod
    def _run(
        self, ids: Array, record: tuple[str, ...], patches: Mapping[str, Sequence[Patch]]
    ) -> dict[str, Array]:
        """Returns the recorded values of ids [B T]."""


class SpecificationRunner(Runner):
    """The specification: float64 on the tape."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, Array]) -> None:
        self.config = config
        self.weights = {name: np.asarray(weights[name], np.float64) for name in config.parameters()}

    def _run(
        self, ids: Array, record: tuple[str, ...], patches: Mapping[str, Sequence[Patch]]
    ) -> dict[str, Array]:
        by_head = any(map(asks_for_heads, (*record, *patches)))
        tape = forward(self.config, self.weights, ids, by_head=by_head)
        names = select([*tape.values, *tape.aliases], record, "record", UsageError)
        values = replay(tape, patches) if patches else tape.values
        return {name: values[tape.resolve(name)] for name in names}


def replay(tape: Tape, patches: Mapping[str, Sequence[Patch]]) -> dict[str, Array]:
    """Returns every value of the tape's program where the patches are applied to what each step computes."""
    changes: dict[str, list[Patch]] = {}
    for name, some in patches.items():
        changes.setdefault(tape.ref(name).name, []).extend(some)
    values = dict(tape.values)
    for name in values:
        if name in tape.steps:
            values[name] = tape.steps[name].run(values)
        for patch in changes.get(name, ()):
            values[name] = patch.apply(values[name])
    return values


class EngineRunner(Runner):
    """The fast engine, in the type and on the device of its module."""

    def __init__(self, module: "Transformer") -> None:
        self.module, self.config = module, module.config
        # widened when they are read: most looks read few of them
        self.weights = LazyWeights.from_function(module.config.parameters(), cache(self._widen))

    def _widen(self, name: str) -> Array:
        from pellucid.engine.linear import Linear, widen_weight

        layer, _, last = name.rpartition(".")
        owner = self.module.get_submodule(layer)
        if last == "weight" and isinstance(owner, Linear):  # an adapter is part of what it applies
            weight = owner.widen_weight()
        else:
            weight = widen_weight(getattr(owner, last))
        widened: Array = weight.cpu().numpy()
        return widened

    def _run(
        self, ids: Array, record: tuple[str, ...], patches: Mapping[str, Sequence[Patch]]
    ) -> dict[str, Array]:
        from contextlib import ExitStack

        import torch

        from pellucid.engine.taps import edit
        from pellucid.engine.taps import record as recording

        with ExitStack() as stack:
            for name, some in patches.items():
                stack.enter_context(edit(name, _make_change(some), self.module))
            seen = stack.enter_context(recording(*record, model=self.module))
            stack.enter_context(torch.no_grad())
            self.module(torch.as_tensor(ids, device=self.module.device))
        return seen.arrays()


def _make_change(patches: Sequence[Patch]) -> Any:
    import torch
    from torch import Tensor

    def change(value: Tensor) -> Tensor:
        new = value.clone()
        for patch in patches:
            index = tuple(torch.as_tensor(i) if isinstance(i, np.ndarray) else i for i in patch.index)
            new[index or ...] = torch.as_tensor(patch.value, dtype=new.dtype, device=new.device)
        return new

    return change


def _group(patches: Iterable[Patch]) -> dict[str, list[Patch]]:
    grouped: dict[str, list[Patch]] = {}
    for patch in patches:
        grouped.setdefault(patch.name, []).append(patch)
    return grouped


@dataclass(frozen=True)
class PromptedModel:
    """A model under its name, its runner, the ids of the prompt, and how a token is shown (`·cat`); `begin`
    are the tokens that every text of the model begins with: its bos token, or none."""

    name: str
    runner: Runner
    ids: tuple[int, ...]
    show_token: Callable[[int], str] = str
    tokenizer: Tokenizer | None = None
    begin: tuple[int, ...] = ()

    @cached_property
    def labels(self) -> list[str]:
        """The text of each position, as it is shown."""
        return [self.show_token(id) for id in self.ids]


def check_position(position: int, length: int) -> int:
    """Returns a position of a prompt counted from 0; −1 is the last one. Raises where there is none."""
    if not -length <= position < length:
        raise UsageError(f"position {position} is outside of the prompt: it has {length} tokens, from 0.")
    return position % length


def check_tokens(config: ModelConfig, tokens: Iterable[int | None]) -> None:
    """Raises where a token, other than None, is not in the vocabulary."""
    for id in tokens:
        if id is not None and not 0 <= id < config.vocab_size:
            raise TokenError(
                f"token {id} is not in the vocabulary: ids go from 0 to {config.vocab_size - 1}."
            )

"""A check: one claim about a model, its error budget, and the function that measures it; and the models that
checks measure, whole or reduced."""

import os
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch

from pellucid.base.errors import ResourceError, TokenError, quote
from pellucid.base.formatting import pluralize
from pellucid.base.quantized import QuantizedWeight
from pellucid.config import ModelConfig
from pellucid.engine.transformer import Transformer
from pellucid.explanation.trace import Trace
from pellucid.formats.pretrained import as_lazy, parameter_count
from pellucid.model import Model
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from pellucid.verification.checks.files.second_readers import read_schemes
from pellucid.verification.mismatch import explain_mismatch, find_mismatch, kind_of, largest, scales_by_kind
from pellucid.verification.verdict import Finding, Judged, Verdict

TEXT = (
    "The old lighthouse keeper counted the ships every evening. On the third of May, at 7:45, he counted "
    "twelve; the thirteenth came an hour later, without a light, and no one aboard could say why."
)
LENGTH = 35
"""How many tokens most checks read: enough for every kind of step, few enough for float64 on two cores, and
not a multiple of what kernels compute at once."""
LARGE = 2**22
"""Parameters from which on a model is large: the checks of what all layers and positions share then read a
few layers and positions, and say so."""
FEW_LAYERS, FEW_TOKENS = 2, 1021
"""What the excerpt of a large model has: one block reads the embedding, the other one a block's output. The
number of tokens is prime, and so not a multiple of what kernels compute at once."""
NO_MEMORY = "there is not enough memory for it here"
QUANTIZED = "its weights are quantized, and integers have no gradient"
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
LONGEST = 512
"""Tokens that a check of a small model reads at most, so that a window may be passed."""


class Subject:
    """A model that is verified; with a `config`, the excerpt of it that has these sizes. With `is_quick`, the
    paths of a large model are run in the types that people use most. `evidence` is a text of the kind that it
    was trained on, which decides how its weights are read."""

    def __init__(
        self,
        model: Model,
        text: str = TEXT,
        config: ModelConfig | None = None,
        *,
        is_quick: bool = False,
        evidence: str | None = None,
    ) -> None:
        self.model, self.text, self.config, self.is_quick = model, text, config or model.config, is_quick
        self.evidence = evidence
        self._modules: dict[Any, Transformer] = {}
        self._programs: dict[Any, Tape] = {}

    @cached_property
    def weights(self) -> dict[str, Array]:
        """The weights, held here because many checks read them and a file would be read again for each; of an
        excerpt, their first rows."""
        if self.config == self.model.config:
            return dict(self.model.weights)
        return cut_weights(self.model.weights, self.config)

    @cached_property
    def quantized(self) -> frozenset[str]:
        """The names of the weights that are quantized."""
        return frozenset(as_lazy(self.model.pretrained.weights).types)

    @cached_property
    def requantized(self) -> frozenset[str]:
        """Those whose integers are in no file: they were quantized when the model was opened."""
        held, provenance = as_lazy(self.model.pretrained.weights).types, self.model.pretrained.provenance
        scheme_of = read_schemes(provenance.path) if provenance.format == "pellucid" else lambda name: None

        def is_stored(name: str) -> bool:
            if provenance.types.get(name, "").lower() != held[name].lower():
                return False
            scheme, weight = scheme_of(name), self.weights.get(name)
            return (
                scheme is None or not isinstance(weight, QuantizedWeight) or scheme["group"] == weight.group
            )

        return frozenset(name for name in held if not is_stored(name))

    def float_weights(self, config: ModelConfig | None = None) -> dict[str, Array]:
        """Returns the weights of a config as arrays of floats: a quantized one is dequantized to float32."""
        return {name: np.asarray(self.weights[name]) for name in (config or self.config).parameters()}

    @cached_property
    def excerpt(self) -> "Subject":
        """The model itself, or of a large one its first blocks and tokens, for the checks of code that every
        block and token shares."""
        if not self.is_large:
            return self
        vocab_size = min(FEW_TOKENS, self.config.vocab_size)
        config = replace(self.config, n_layer=self.layers, vocab_size=vocab_size)
        return Subject(self.model, self.text, config, is_quick=self.is_quick)

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """The types in which the paths are run."""
        return DTYPES[1:3] if self.is_quick and self.is_large else DTYPES

    def describe_excerpt(self) -> str:
        """Returns how much of the model an excerpt is: "2 of 30 layers, 1,021 of 49,152 tokens"."""
        whole, config = self.model.config, self.config
        parts = [(config.n_layer, whole.n_layer, "layers"), (config.vocab_size, whole.vocab_size, "tokens")]
        return ", ".join(f"{some:,} of {all:,} {what}" for some, all, what in parts if some < all)

    @cached_property
    def all_ids(self) -> list[int]:
        """The ids of the text; where the model cannot encode it, random ids from a fixed seed."""
        try:
            ids = self.model.encode(self.text)
        except TokenError:
            ids = np.random.default_rng(0).integers(0, self.config.vocab_size, LENGTH).tolist()
        return ids[: self.config.context_length]

    @property
    def ids(self) -> list[int]:
        return self.make_ids(self.length)

    @cached_property
    def is_large(self) -> bool:
        return parameter_count(self.config.parameters()) > LARGE

    @cached_property
    def layers(self) -> int:
        """The number of first blocks that the checks of the paths run: all but in a large model."""
        return min(FEW_LAYERS, self.config.n_layer) if self.is_large else self.config.n_layer

    @cached_property
    def length(self) -> int:
        """The number of tokens that most checks read."""
        return self.find_length()

    def find_length(self, window: int = 0) -> int:
        """Returns how many tokens pass a window of the mask, or a chunk of linear attention, and the window
        that another reader of the file found, unless the model is large or the window is."""
        visible, chunk = self.config.mask.visible_past, getattr(self.config.attention, "chunk", 0)
        passed = (size + 8 for size in (sum(visible or (0,)), chunk, window))
        wanted = [size for size in passed if size <= LONGEST and not self.is_large]
        return min(max(LENGTH, *wanted, 0), self.config.context_length)

    def make_ids(self, count: int, seed: int = 0) -> list[int]:
        """Returns `count` ids: those of the text, and where it has fewer, random ones after them; of another
        seed than 0, random ones alone."""
        given = [id % self.config.vocab_size for id in self.all_ids[:count]] if seed == 0 else []
        drawn = np.random.default_rng(seed).integers(0, self.config.vocab_size, count - len(given))
        return [*given, *drawn.tolist()]

    @property
    def pair(self) -> tuple[list[int], list[int]]:
        """The ids that are read, and their targets: the id after each."""
        return (self.ids[:-1], self.ids[1:]) if len(self.ids) > 1 else (self.ids, self.ids)

    def module(self, dtype: torch.dtype, layers: int | None = None) -> Transformer:
        """Returns the fast engine in a type; with `layers`, only that many of the first blocks."""
        key = dtype, None if layers == self.config.n_layer else layers
        if key not in self._modules:
            if key[1] is None and self.is_large:  # one at a time: a real model in float64 takes much memory
                self._modules = {other: made for other, made in self._modules.items() if other[1] is not None}
            config = self.with_layers(layers)
            weights = {name: self.weights[name] for name in config.parameters()}
            device = self.model.resolve_device()
            self._modules[key] = Transformer.from_weights(config, weights, device, dtype).eval()
        return self._modules[key]

    def with_layers(self, layers: int | None) -> ModelConfig:
        """Returns the config with this number of the first blocks, or with all."""
        return self.config if layers is None else replace(self.config, n_layer=layers)

    def program_of(self, ids: list[list[int]], layers: int | None = None) -> Tape:
        """Returns the specification's pass over ids [B T] through the first blocks, which the checks of all
        paths and types share."""
        key = layers, *map(tuple, ids)
        if key not in self._programs:
            config = self.with_layers(layers)
            weights = {name: self.weights[name] for name in config.parameters()}
            self._programs[key] = forward(config, weights, ids)
        return self._programs[key]

    @cached_property
    def program(self) -> Tape:
        """The specification's forward pass on the pair, which several checks share."""
        ids, targets = self.pair
        return forward(self.config, self.weights, [ids], [targets])

    def attempt(self, check: "Check[Subject]") -> Finding:
        """Measures the claim of a check. What a check runs must run, where there is memory for it."""
        if check.needs_floats and self.quantized:
            return Finding(Verdict.SKIPPED, QUANTIZED)
        try:
            return check.measure(self)
        except ResourceError as error:
            return Finding(Verdict.SKIPPED, str(error))
        except (MemoryError, torch.OutOfMemoryError):
            return Finding(Verdict.SKIPPED, NO_MEMORY)
        except Exception as error:
            from pellucid.training.memory import HOST_ERROR

            is_short = HOST_ERROR in str(error)
            return Finding(Verdict.SKIPPED, NO_MEMORY) if is_short else describe_exception(error)

    def trace(self, tape: Tape, ids: list[int]) -> Trace:
        """Returns a trace of the tape with the tokens of its positions, for messages."""
        tokens = [self.model.token(id) for id in ids]
        return Trace(tape, {}, {"t": tokens, "s": tokens})


def cut_weights(weights: Mapping[str, Array], config: ModelConfig) -> dict[str, Array]:
    """Returns the first rows and columns of weights: those that a smaller config has."""
    return {name: weights[name][tuple(map(slice, shape))] for name, shape in config.parameters().items()}


LAYERS = 2
"""One block reads the embedding, the other one the output of a block."""


class ReducedModel:
    """The first `layers` blocks, `vocabulary` tokens and `context` positions of a model, or as many as it
    has, for checks of code that every block and token shares. Its parameters are the first rows of the
    model's own, so that both engines compute with the same numbers."""

    def __init__(
        self,
        subject: Subject,
        *,
        layers: int = LAYERS,
        vocabulary: int | None = None,
        context: int | None = None,
    ) -> None:
        self.subject, own = subject, subject.config
        self.config: ModelConfig = replace(
            own,
            n_layer=min(layers, own.n_layer),
            vocab_size=min(vocabulary or own.vocab_size, own.vocab_size),
            context_length=min(context or own.context_length, own.context_length),
        )

    @cached_property
    def weights(self) -> dict[str, Array]:
        """The first rows and columns of the model's own weights."""
        return cut_weights(self.subject.weights, self.config)

    def module(
        self, dtype: torch.dtype, *, context: int | None = None, layers: int | None = None
    ) -> Transformer:
        """Returns the fast engine in a type; `context` and `layers` reduce it further."""
        config = replace(
            self.config,
            context_length=min(context or self.config.context_length, self.config.context_length),
            n_layer=min(layers or self.config.n_layer, self.config.n_layer),
        )
        weights = cut_weights(self.weights, config)
        return Transformer.from_weights(config, weights, self.subject.model.resolve_device(), dtype).eval()

    def ids(self, count: int) -> list[int]:
        """Returns `count` tokens: those of the model's text, then random ones."""
        return [id % self.config.vocab_size for id in self.subject.make_ids(count)]


def gives_finite_logits(module: Transformer, rows: int = 8) -> bool:
    """Returns whether an uncached run gives finite logits for `rows` random texts; in float16 a number may
    be too large."""
    length = min(12, module.config.context_length)
    ids = np.random.default_rng(0).integers(0, module.config.vocab_size, (rows, length))
    with torch.no_grad():
        return bool(module(torch.from_numpy(ids).to(module.device)).isfinite().all())


class Verified(Protocol):
    """A subject of checks: a model, or a training run."""

    def attempt(self, check: "Check[Any]") -> Finding:
        """Measures the claim of a check."""


S = TypeVar("S", bound=Verified)


@dataclass(frozen=True)
class Check(Generic[S]):
    """One claim about a model or a run, a complete sentence."""

    name: str
    claim: str
    budget: str
    """The error budget; a finding may have its own, by the type in which a run computes."""
    measure: Callable[[S], Finding]
    judges: Judged = Judged.PROGRAM
    """The thing to mend where it finds a bug, if the checks before it find none."""
    quick: bool = True
    """Whether it also runs with `--quick`."""
    needs_floats: bool = False
    """Whether it is of gradients, which integers do not have."""
    required: bool = False
    """Whether the checks after it are not run where it finds a bug: they would measure that bug again, and
    blame something else."""
    device: str = ""
    """The kind of device whose own code it is of; empty for what every device computes."""
    trusts: str = ""
    """The parts of the package that a check of a run takes as right: a fault of theirs would be in both
    numbers."""

    def run(self, subject: S) -> Finding:
        """Measures the claim on a subject."""
        start = time.perf_counter()
        found = subject.attempt(self)
        return replace(
            found,
            name=self.name,
            claim=self.claim,
            allowed=found.allowed or self.budget,
            seconds=time.perf_counter() - start,
            judges=self.judges,
            trusts=self.trusts,
        )


def describe_exception(error: Exception) -> Finding:
    """Returns BUG at the function of the package, below the checks, that raised."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "pellucid" in frame.filename]
    below = [frame for frame in frames if f"{os.sep}checks{os.sep}" not in frame.filename] or frames
    file = below[-1].filename.rpartition(f"pellucid{os.sep}")[2].replace(os.sep, "/")
    at = f"{file}: {below[-1].name}"
    return Finding(Verdict.BUG, f"{type(error).__name__}", at, f"it could not be run: {quote(error)}")


def compare_values(
    got: Mapping[str, Array], wanted: Mapping[str, Array], tolerance: float, trace: Trace | None = None
) -> Finding:
    """Returns EQUAL where every wanted value is within the tolerance, else BUG at the first that is not."""
    scales = scales_by_kind(wanted)
    worst = 0.0
    for name, value in wanted.items():
        scale = scales[kind_of(name)]
        if found := find_mismatch(name, got[name], value, tolerance, scale):
            message = explain_mismatch(found, trace) if trace and name in trace.tape else str(found)
            return Finding(Verdict.BUG, f"{found.got:.6g} for {found.wanted:.6g}", name, message)
        is_finite = np.isfinite(value)
        error = float(np.abs(got[name][is_finite] - value[is_finite]).max(initial=0.0))
        worst = max(worst, error / (max(largest([value]), scale * 1e-3) or 1.0))
    return Finding(Verdict.EQUAL, f"{worst:.1e} of {pluralize(len(wanted), 'value')}")

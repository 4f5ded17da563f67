"""The loss and the gradients of a batch by the specification, a few rows at a time.

The mean over the counted targets of a batch is the mean of the means of its row groups, each weighted by its
counted targets or their class weights; so are the gradients. Both are computed in float64, and once more in
the run's type: the difference of the two is what rounding does to this very batch.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from pellucid.base.dtypes import BY_NAME
from pellucid.base.lora import A, B
from pellucid.base.names import IGNORE_INDEX
from pellucid.config import ModelConfig
from pellucid.data.rows import Batch
from pellucid.engine.loss import loss
from pellucid.engine.taps import record
from pellucid.engine.transformer import Transformer
from pellucid.reference.op import Array
from pellucid.reference.tape import Step, Tape
from pellucid.reference.training import forward
from pellucid.verification.rounding import SINGLE

GROUP_TOKENS = 1024
"""The most tokens of rows that are on one tape, which keeps every value; one row may have more."""
ATTENDED = 1e-6
"""The attention above which a key is attended to."""
NORM_VALUES = ("mean", "rstd", "centered", "normed")
LOSS_VALUES = (
    "probs", "lse", "nll", "weighted_nll", "neg_log_probs", "uniform_nll", "smoothed", "cross_entropy",
    "z_penalty", "z_loss", "loss",
)  # fmt: skip
WIDE = frozenset((*NORM_VALUES, *LOSS_VALUES))
"""The last parts of the names of values that a model in bfloat16 computes and keeps in float32: those inside
norms and the loss."""


def cut_batch(batch: Batch, rows: slice, columns: slice = slice(None)) -> Batch:
    """Returns some rows of a batch, and some consecutive positions of them."""
    segments = None if batch.segments is None else batch.segments[rows, columns]
    return Batch(batch.ids[rows, columns], batch.targets[rows, columns], segments)


def take_tokens(batch: Batch, count: int) -> Batch:
    """Returns whole rows of a batch up to this many tokens, from the first row with a counted target on; or,
    where one row has more, positions of it from its first counted target on."""
    counted = batch.targets != IGNORE_INDEX
    row, length = int(counted.any(axis=1).argmax()), batch.ids.shape[1]
    if count >= length:
        return cut_batch(batch, slice(row, row + count // length))
    first = min(int(counted[row].argmax()), length - count)
    return cut_batch(batch, slice(row, row + 1), slice(first, first + count))


def join_rows(parts: list[Batch]) -> Batch:
    """Returns the rows of several batches as one."""
    segments = [part.segments for part in parts if part.segments is not None]
    ids, targets = (
        np.concatenate(arrays) for arrays in zip(*((p.ids, p.targets) for p in parts), strict=True)
    )
    return Batch(ids, targets, np.concatenate(segments) if segments else None)


@dataclass(frozen=True)
class Problem:
    """A batch, the weights and the settings of its loss: what determines loss and gradients."""

    config: ModelConfig
    weights: Mapping[str, Array]
    rows: Batch
    smoothing: float = 0.0
    z: float = 0.0
    class_weights: Array | None = None
    keep: Mapping[str, Array] = field(default_factory=dict)
    """Dropout masks, with 1 / (1 − rate) where a number is kept."""
    adapters: Mapping[str, Array] = field(default_factory=dict)
    """A and B of each weight W = W₀ + s B A, by name, where these are trained."""
    scale: float = 0.0
    """The s of the adapters."""

    @property
    def tokens(self) -> int:
        return int(self.rows.ids.size)

    def take(self, rows: slice) -> "Problem":
        """Returns the same problem for some rows."""
        keep = {name: mask[rows] for name, mask in self.keep.items()}
        return replace(self, rows=cut_batch(self.rows, rows), keep=keep)

    def take_tokens(self, count: int) -> "Problem":
        """Returns the same problem, without dropout, for at most about this many tokens."""
        return replace(self, rows=take_tokens(self.rows, count), keep={})

    @property
    def size(self) -> int:
        """The number of parameters."""
        return sum(weight.size for weight in self.weights.values())

    def weigh(self) -> float:
        """Returns the number of counted targets, or the sum of their class weights."""
        counted = self.rows.targets[self.rows.targets != IGNORE_INDEX]
        weights = self.class_weights
        return len(counted) if weights is None else float(weights[counted].sum())


@dataclass(frozen=True)
class LossAndGradients:
    loss: float
    grads: dict[str, Array]
    nll: Array
    """The negative log-likelihood of each target [B T], 0 where it does not count."""
    largest_score: float = 0.0
    """The largest |score| of a key that is attended to: what an error of a score is relative to."""


class RoundedTape(Tape):
    """Computes each step as a model of a narrower type does: in float32, or rounded to bfloat16 where such a
    model holds a value in it. The seed decides the error of attention kernels."""

    def __init__(self, dtype: str, seed: int) -> None:
        super().__init__(np.float32 if dtype == "float32" else np.float64)
        self.type, self.rng = BY_NAME[dtype], np.random.default_rng(seed)

    def _run(self, step: Step) -> Array:
        value = super()._run(step)
        if is_pattern(step):
            value = self._disturb(value, self.values[step.inputs[0]])
        base = step.name.removeprefix("d.").partition(".via.")[0]
        if self.type.name == "float32" or value.dtype.kind != "f" or base.rpartition(".")[2] in WIDE:
            return value
        return torch.from_numpy(value).bfloat16().double().numpy()

    def _disturb(self, pattern: Array, scores: Array) -> Array:
        """Returns a pattern whose rows no longer sum to 1. In its backward pass a kernel computes
        exp(score − logsumexp) again, from scores in float32, and what cancels in a row from rounded
        outputs."""
        largest = np.where(pattern > ATTENDED, np.abs(scores), 0.0).max(axis=-1, keepdims=True)
        error = self.type.roundoff + SINGLE.roundoff * largest
        changed: Array = pattern * (1 + error * self.rng.uniform(-1, 1, largest.shape))
        return changed.astype(pattern.dtype)


def is_pattern(step: Step) -> bool:
    """Returns whether a step computes attention probabilities."""
    return step.op.name == "softmax" and step.name.endswith(".attn.pattern")


def compute_by_specification(given: Problem, dtype: str = "float64", seed: int = 0) -> LossAndGradients:
    """Returns the loss of the whole batch and the gradient of each parameter; in a narrower type, each step
    rounded as a model of that type rounds it."""
    make_tape = Tape if dtype == "float64" else partial(RoundedTape, dtype, seed)

    def run(group: Problem) -> LossAndGradients:
        settings: dict[str, Any] = {"smoothing": group.smoothing, "z": group.z}
        tape = forward(
            group.config, group.weights, group.rows.ids, group.rows.targets,
            objective=settings | {"class_weights": group.class_weights},
            make_tape=make_tape, segments=group.rows.segments, dropout=group.keep or None,
        )  # fmt: skip
        tape.backward(tape.ref("loss"))
        grads = {name: tape[f"d.{name}"] for name in group.weights if f"d.{name}" in tape}
        return LossAndGradients(float(tape["loss"]), grads, tape["nll"], _largest_score(tape))

    return _add_groups(given, run)


def compute_by_fast_engine(given: Problem, device: torch.device) -> LossAndGradients:
    """Returns the same from the fast engine in float64, on its explicit path."""
    module = Transformer.from_weights(given.config, given.weights, device, torch.float64)
    classes = None if given.class_weights is None else torch.from_numpy(given.class_weights).to(device)

    def run(group: Problem) -> LossAndGradients:
        arrays = (group.rows.ids, group.rows.targets, group.rows.segments)
        ids, targets, segments = (None if a is None else torch.as_tensor(a, device=device) for a in arrays)
        assert targets is not None
        with record("nll") as seen:
            logits = module(ids, segments=segments)
            found = loss(logits, targets, smoothing=group.smoothing, z=group.z, class_weights=classes)
        parameters = dict(module.named_parameters())
        grads = torch.autograd.grad(found, list(parameters.values()), allow_unused=True)
        named = {
            name: grad.cpu().numpy() for name, grad in zip(parameters, grads, strict=True) if grad is not None
        }
        return LossAndGradients(float(found.detach()), named, seen["nll"].cpu().numpy())

    return _add_groups(given, run)


def _add_groups(given: Problem, run: Callable[[Problem], LossAndGradients]) -> LossAndGradients:
    """Returns the sum over row groups of loss and gradients, each weighted by its share of the targets."""
    weight = given.weigh()
    total, score, grads = (
        0.0,
        0.0,
        {name: np.zeros(shape) for name, shape in given.config.parameters().items()},
    )
    nll = np.zeros(given.rows.ids.shape)
    for rows in _split(given):
        group = given.take(rows)
        if not (own := group.weigh()):
            continue
        share, found = own / weight, run(group)
        total, score = total + share * found.loss, max(score, found.largest_score)
        nll[rows] = found.nll
        for name, grad in found.grads.items():
            grads[name] += share * grad
    return LossAndGradients(total, grads | _adapter_grads(given, grads), nll, score)


def _largest_score(tape: Tape) -> float:
    patterns = [step for step in tape.steps.values() if is_pattern(step)]
    scores = (tape[step.inputs[0]][tape[step.name] > ATTENDED] for step in patterns)
    return max((float(np.abs(found).max(initial=0.0)) for found in scores), default=0.0)


def _adapter_grads(given: Problem, grads: Mapping[str, Array]) -> dict[str, Array]:
    """Returns dA = s Bᵀ dW and dB = s dW Aᵀ of each adapter."""
    found: dict[str, Array] = {}
    for path in (name.removesuffix(A) for name in given.adapters if name.endswith(A)):
        dw = given.scale * grads[f"{path}.weight"]
        found |= {path + A: given.adapters[path + B].T @ dw, path + B: dw @ given.adapters[path + A].T}
    return found


def _split(given: Problem) -> Iterator[slice]:
    """Yields groups of rows of at most `GROUP_TOKENS` tokens, or single rows."""
    rows, length = given.rows.ids.shape
    size = max(1, GROUP_TOKENS // length)
    return (slice(first, first + size) for first in range(0, rows, size))

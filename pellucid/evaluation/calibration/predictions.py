"""Predictions for each counted target: how sure it is, of which token, and whether it is right.

    before, after = compute_predictions(states, [TemperatureScaling(1.0), TemperatureScaling(1.2)])
    before.confidence     # max_v p_v, [N]

With p = softmax(s), where s are the logits z after scaling:

    confidence        max_v p_v; of equal logits the smallest id is the predicted token
    nll               −ln p_y
    brier             Σ_v (p_v − 1[v = y])² = (1 − p_y)² + Σ of p_v² over the other tokens
    top_mass[k]       the sum of the k largest p; right where y is one of these k tokens
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pellucid.base.errors import UsageError
from pellucid.evaluation.calibration.states import HeldStates, Ids

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
TOPS = (1, 5, 10)
"""The k of top-k calibration; a k that is not below the size of the vocabulary is omitted."""


class Scaling(Protocol):
    """A map from logits z [n V] to logits s [n V] with other probabilities."""

    def apply(self, logits: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class TemperatureScaling:
    """s = z / T."""

    value: float

    def apply(self, logits: Tensor) -> Tensor:
        return logits if self.value == 1 else logits / self.value


@dataclass(frozen=True)
class Predictions:
    """One entry for each of N counted targets; `rank` is 0 where the target is the most probable token."""

    predicted: Ids
    rank: Ids
    nll: Array
    brier: Array
    top_mass: Mapping[int, Array]

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def confidence(self) -> Array:
        """The probability of the predicted token."""
        return self.top_mass[1]

    @property
    def is_correct(self) -> Flags:
        return self.is_in_top(1)

    def is_in_top(self, k: int) -> Flags:
        """Returns whether each target is one of the k most probable tokens."""
        return self.rank < k


def find_tops(vocab_size: int) -> tuple[int, ...]:
    """Returns the k of top-k calibration for a vocabulary of this size.

    >>> find_tops(4), find_tops(50257)
    ((1,), (1, 5, 10))
    """
    return tuple(k for k in TOPS if k == 1 or k < vocab_size)


@torch.no_grad()
def compute_predictions(states: HeldStates, scalings: Sequence[Scaling]) -> list[Predictions]:
    """Returns the predictions under each scaling; the logits are computed once for all of them."""
    tops, chunks = find_tops(states.vocab_size), list[list[list[Tensor]]]()
    for rows, logits, targets in states.chunks():
        check_finite(states, rows, logits)
        chunks.append([_predict(scaling.apply(logits), targets, tops) for scaling in scalings])
    made = []
    for i in range(len(scalings)):
        columns = zip(*(chunk[i] for chunk in chunks), strict=True)
        predicted, rank, nll, brier, *mass = (torch.cat(column).cpu().numpy() for column in columns)
        made.append(Predictions(predicted, rank, nll, brier, dict(zip(tops, mass, strict=True))))
    return made


def check_finite(states: HeldStates, rows: slice, logits: Tensor) -> None:
    """Raises where a logit is NaN or Inf, with the place of its target."""
    is_bad = ~torch.isfinite(logits.sum(-1))  # one NaN or Inf makes the sum one
    if bool(is_bad.any()):
        at = rows.start + int(is_bad.nonzero()[0])
        where = f"target {int(states.positions[at]):,} of {states.names[states.documents[at]]}"
        raise UsageError(f"the model's logits are NaN or Inf at {where}, so it has no probabilities there.")


def _predict(logits: Tensor, targets: Tensor, tops: Sequence[int]) -> list[Tensor]:
    at = targets[:, None]
    own, most = logits.gather(-1, at), logits.amax(-1, keepdim=True)
    rank = (logits > own).sum(-1)
    is_tied = (logits == own).sum(-1) > 1  # of equal ones, the smaller id is first
    for row in is_tied.nonzero()[:, 0].tolist():
        rank[row] += (logits[row, : int(targets[row])] == own[row]).sum()
    terms = torch.sub(logits, most).exp_()  # e^(s_v − max s)
    total = terms.sum(-1)
    nll = total.log() - (own - most)[:, 0]
    largest = terms.topk(max(tops), -1).values / total[:, None]
    # a sum of probabilities may round to a little above 1, where no bin is
    mass = [largest[:, :k].sum(-1).clamp(max=1.0) for k in tops]
    terms.scatter_(-1, at, 0.0)  # 1 − 2 p_y + Σ p² cancels where p_y is near 1
    others = torch.linalg.vecdot(terms, terms) / total.square()
    return [logits.argmax(-1), rank, nll, torch.expm1(-nll).square() + others, *mass]

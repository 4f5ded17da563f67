"""The cross-entropy loss over the targets that count, with label smoothing, class weights and z-loss.

The specification (`reference/loss.py`) defines the settings; the values here have its names.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pellucid.base.errors import UsageError
from pellucid.base.names import IGNORE_INDEX
from pellucid.engine.precision import widen
from pellucid.engine.taps import is_explicit, tap


class _Counts(NamedTuple):
    """Which targets count [B T], the class weight of each [B T] (None: 1 for all), and the sum of the
    weights."""

    counted: Tensor
    weights: Tensor | None
    total: Tensor


def loss(
    logits: Tensor,
    targets: Tensor,
    *,
    smoothing: float = 0.0,
    z: float = 0.0,
    class_weights: Tensor | None = None,
) -> Tensor:
    """Returns the loss over the targets [B T] that are not IGNORE_INDEX; 0 where their weights sum to 0."""
    check_settings(smoothing, z, class_weights, logits.shape[-1])
    logits = widen(logits)
    classes = None if class_weights is None else class_weights.to(logits)
    counts = _count_targets(targets, classes)
    lse = tap("lse", torch.logsumexp(logits, -1)) if is_explicit() else None
    if lse is None:
        cross_entropy = _compute_fused(logits, targets, classes, counts, smoothing)
    else:
        cross_entropy = _compute_explicit(logits, lse, targets, classes, counts, smoothing)
    if not z:
        return tap("loss", cross_entropy)
    squares = tap("z_penalty", (torch.logsumexp(logits, -1) if lse is None else lse).square())
    penalty = torch.where(counts.counted, squares, 0.0).sum() / counts.counted.sum().clamp_min(1)
    return tap("loss", tap("cross_entropy", cross_entropy) + tap("z_loss", z * penalty))


def _compute_fused(
    logits: Tensor, targets: Tensor, classes: Tensor | None, counts: _Counts, smoothing: float
) -> Tensor:
    """Returns the mean negative log-likelihood from one kernel."""
    total = F.cross_entropy(
        logits.flatten(0, 1),
        targets.flatten(),
        weight=classes,
        ignore_index=IGNORE_INDEX,
        reduction="sum",
        label_smoothing=smoothing,
    )
    return total / counts.total


def _compute_explicit(
    logits: Tensor, lse: Tensor, targets: Tensor, classes: Tensor | None, counts: _Counts, smoothing: float
) -> Tensor:
    """Returns the mean negative log-likelihood step by step, with a name for every value."""
    chosen = logits.gather(-1, targets.clamp_min(0)[..., None])[..., 0]
    each = tap("nll", torch.where(counts.counted, lse - chosen, 0.0))
    if counts.weights is not None:
        each = tap("weighted_nll", each * counts.weights)
    if smoothing:
        every = tap("neg_log_probs", lse[..., None] - logits)
        uniform = tap("uniform_nll", (every if classes is None else every * classes).mean(-1))
        each = tap("smoothed", (1 - smoothing) * each + smoothing * uniform)
        each = torch.where(counts.counted, each, 0.0)
    return each.sum() / counts.total


def _count_targets(targets: Tensor, classes: Tensor | None) -> _Counts:
    counted = targets != IGNORE_INDEX
    if classes is None:
        return _Counts(counted, None, counted.sum().clamp_min(1))
    weights = torch.where(counted, classes[targets.clamp_min(0)], 0.0)
    total = weights.sum()
    return _Counts(counted, weights, torch.where(total > 0, total, math.inf))  # x / ∞ = 0


def check_settings(smoothing: float, z: float, class_weights: Tensor | None, vocabulary: int) -> None:
    if not 0 <= smoothing <= 1:
        raise UsageError(f"smoothing must be from 0 to 1; got {smoothing:g}.")
    if not 0 <= z < math.inf:
        raise UsageError(f"z must be finite and 0 or more; got {z:g}.")
    if class_weights is not None and class_weights.shape != (vocabulary,):
        raise UsageError(
            f"class_weights must be {vocabulary} numbers, one for each token; "
            f"got the shape {tuple(class_weights.shape)}."
        )

"""The loss and accuracy of a model on batches of tokens, and what can be computed from the loss.

loss, accuracy = compute_loss(model, batches, vocab_size)
bits_per_byte(loss, bytes_per_token)
"""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from pellucid.base.names import IGNORE_INDEX
from pellucid.engine.loss import loss as cross_entropy

MAX_LOGITS = 1 << 28
"""Logits that are computed at once, some of them in float32; a batch with more is evaluated in parts."""


class LossAndAccuracy(NamedTuple):
    """Means over all counted targets; NaN where there are none."""

    loss: float
    """Negative log-likelihood in nats per token, without label smoothing and z-loss."""
    accuracy: float
    """The fraction of targets that were the most likely token."""


@torch.no_grad()
def compute_loss(
    forward: Callable[..., Tensor],
    batches: Iterable[tuple[Tensor, ...]],
    vocab_size: int,
    reduce: Callable[..., list[float]] = lambda *sums: list(sums),
) -> LossAndAccuracy:
    """Computes the mean loss and the accuracy over batches of ids and targets [B T].

    `forward` turns ids into logits [B T V]. Batches of packed rows have their segments [B T] as a third
    tensor, which `forward` gets as well. `reduce` adds up numbers over all ranks, where each evaluates its
    own rows; each target counts once, so that batches with many ignored targets do not weigh more.
    """
    loss_sum, correct, count = 0.0, 0, 0
    for batch in batches:
        rows = MAX_LOGITS // (batch[0].shape[1] * vocab_size) or 1
        for ids, targets, *segments in zip(*(tensor.split(rows) for tensor in batch), strict=True):
            counted = int((targets != IGNORE_INDEX).sum())
            logits = forward(ids, *segments)
            loss_sum += float(cross_entropy(logits, targets)) * counted
            correct += int((logits.argmax(-1) == targets).sum())
            count += counted
    loss_sum, correct_sum, targets_sum = reduce(loss_sum, correct, count)
    if not targets_sum:
        return LossAndAccuracy(math.nan, math.nan)
    return LossAndAccuracy(loss_sum / targets_sum, correct_sum / targets_sum)


def bits_per_byte(loss: float, bytes_per_token: float | None) -> float | None:
    """Returns loss / (ln 2 · bytes per token), which compares models with different tokenizers.

    >>> bits_per_byte(2 * math.log(2), 4.0)
    0.5
    """
    return loss / math.log(2) / bytes_per_token if bytes_per_token else None


def gap_to_floor(loss: float, entropy_floor: float | None) -> float | None:
    """Returns how far the loss is above the entropy of the data, where that is known."""
    return None if entropy_floor is None else loss - entropy_floor


def fraction_learned(loss: float, bigram_baseline: float | None, entropy_floor: float | None) -> float | None:
    """Returns (baseline − loss) / (baseline − floor): 0 for a bigram model, 1 at the entropy floor.

    >>> fraction_learned(1.25, 2.0, 1.0), fraction_learned(1.25, None, None)
    (0.75, None)
    """
    if bigram_baseline is None or entropy_floor is None:
        return None
    return (bigram_baseline - loss) / (bigram_baseline - entropy_floor)

"""The loss: the mean surprise over the targets that count."""

import torch
import torch.nn.functional as F
from torch import Tensor

from pellucid.model.taps import explicit, tap

IGNORED = -100
"""A target that is not counted."""


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean of −ln p(target) over the targets [B T] that are not IGNORED; 0 where none is."""
    counted = targets != IGNORED
    count = counted.sum().clamp_min(1)
    exact = logits if logits.element_size() >= 4 else logits.float()
    if not explicit():
        total = F.cross_entropy(exact.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum")
        return tap("loss", total / count)
    lse = tap("lse", torch.logsumexp(exact, -1))
    chosen = exact.gather(-1, targets.clamp_min(0)[..., None])[..., 0]
    nll = tap("nll", torch.where(counted, lse - chosen, 0.0))
    return tap("loss", nll.sum() / count)

"""Divergence of two models at the same targets: log-likelihoods, KL divergence, and changed top tokens.

    KL(p ‖ q) = Σ_v p_v (ln p_v − ln q_v),    p of the reference, q of the other model

Log-probabilities are computed from the logits in float64, a few rows at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pellucid.base.errors import ConfigError

CHUNK = 1 << 19
"""Logits of each model that are compared at once: more leave the cache of a CPU, and are slower."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Divergence:
    """Arrays [N], a number for each target."""

    reference_nll: Floats
    """−ln p of the target."""
    nll: Floats
    """−ln q of the target."""
    kl: Floats
    """KL(p ‖ q) in nats."""
    reference_top: NDArray[np.int64]
    """The most likely token of the reference; of equally likely ones the smallest id."""
    top: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.kl)

    @property
    def is_flip(self) -> NDArray[np.bool_]:
        """[N] whether the most likely token is another one."""
        return np.not_equal(self.reference_top, self.top)

    def select(self, rows: slice) -> "Divergence":
        """Returns the divergence of some of the targets."""
        return Divergence(*(getattr(self, one.name)[rows] for one in fields(self)))

    @classmethod
    def join(cls, parts: "Sequence[Divergence]") -> Self:
        """Returns the targets of all parts, one after the other."""
        return cls(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(cls)))


@torch.no_grad()
def compare_logits(reference: Tensor, other: Tensor, targets: Tensor) -> Divergence:
    """Returns the divergence of logits [N V] at targets [N]."""
    rows = max(CHUNK // reference.shape[-1], 1)
    parts = zip(reference.split(rows), other.split(rows), targets[:, None].split(rows), strict=True)
    return Divergence.join([_compare(*part) for part in parts])


def _compare(reference: Tensor, other: Tensor, targets: Tensor) -> Divergence:
    ours, theirs = (torch.log_softmax(logits.double(), -1) for logits in (reference, other))
    kl = (ours.exp() * (ours - theirs)).sum(-1)
    if not bool(torch.isfinite(kl).all()):
        raise ConfigError(
            "the bill cannot be computed: the logits of a model have a NaN or an infinity. `pellucid verify` "
            "finds where it comes from."
        )
    found = (-ours.gather(-1, targets)[:, 0], -theirs.gather(-1, targets)[:, 0], kl.clamp(min=0.0))
    tops = (reference.argmax(-1), other.argmax(-1))
    return Divergence(*(array.cpu().numpy() for array in (*found, *tops)))

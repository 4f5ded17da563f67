"""Momentum that averages: a running mean of the gradients, as long as they are."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.optimizers import OptimizerConfig


@dataclass(frozen=True)
class AveragingMomentum(OptimizerConfig):
    formula: ClassVar[str] = "m ← β m + (1 − β) g; θ ← θ − η m"

    beta: float = 0.9
    """Decay β of the momentum.
    Example: 0.95"""

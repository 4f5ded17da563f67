"""Momentum that accumulates: steps in one direction add up, to 1 / (1 − β) times the gradient."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.optimizers import OptimizerConfig


@dataclass(frozen=True)
class Momentum(OptimizerConfig):
    formula: ClassVar[str] = "m ← β m + g; θ ← θ − η m"
    source: ClassVar[str] = "Polyak 1964"

    beta: float = 0.9
    """Decay β of the momentum.
    Example: 0.95"""

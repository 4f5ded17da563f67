"""Stochastic gradient descent: a step against the gradient."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.optimizers import OptimizerConfig


@dataclass(frozen=True)
class Sgd(OptimizerConfig):
    formula: ClassVar[str] = "θ ← θ − η g"
    source: ClassVar[str] = "Robbins and Monro 1951, Annals of Mathematical Statistics 22"

"""Dropout: in training, numbers are zeroed at random, drawn from torch's default generator."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.engine.taps import is_explicit, tap


class Dropout(nn.Module):
    """X ⊙ X.keep, where X.keep is 0 with probability `rate` and else 1 / (1 − rate); X itself in
    evaluation."""

    def __init__(self, name: str, rate: float) -> None:
        super().__init__()
        self.name, self.rate = name, rate

    @property
    def current_rate(self) -> float:
        """The rate in training mode, 0 in evaluation mode."""
        return self.rate if self.training else 0.0

    def forward(self, x: Tensor) -> Tensor:
        if not self.current_rate:
            return x
        if not is_explicit():
            return F.dropout(x, self.rate)
        keep = tap(f"{self.name}.keep", F.dropout(torch.ones_like(x), self.rate))
        return tap(f"{self.name}.dropped", x * keep)

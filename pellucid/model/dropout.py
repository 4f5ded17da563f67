"""Dropout: while training, some numbers of a value are left out, by the dice of torch's own generator."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.model.taps import is_explicit, tap


class Dropout(nn.Module):
    """X ⊙ X.keep, with X.keep 0 or 1 / (1 − rate); X itself where nothing is trained."""

    def __init__(self, name: str, rate: float) -> None:
        super().__init__()
        self.name, self.rate = name, rate

    @property
    def now(self) -> float:
        """The rate, 0 while nothing is trained."""
        return self.rate if self.training else 0.0

    def forward(self, x: Tensor) -> Tensor:
        if not self.now:
            return x
        if not is_explicit():
            return F.dropout(x, self.rate)
        keep = tap(f"{self.name}.keep", F.dropout(torch.ones_like(x), self.rate))
        return tap(f"{self.name}.dropped", x * keep)

"""The fast engine with another activation function: a fault to plant."""

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor, nn

from pellucid.engine.activations import Activation
from pellucid.engine.mlps import GatedMlp


class Wrapped(nn.Module):
    def __init__(self, right: Activation, change: Callable[[Activation, Tensor], Tensor]) -> None:
        super().__init__()
        self.right, self.change = right, change

    def forward(self, x: Tensor) -> Tensor:
        return self.change(self.right, x)


def plant(patch: pytest.MonkeyPatch, change: Callable[[Activation, Tensor], Tensor]) -> None:
    """Makes every new gated MLP compute `change(right, x)` in place of its activation `right(x)`."""
    make = GatedMlp.__init__

    def wrong(self: GatedMlp, *given: Any) -> None:
        make(self, *given)
        self.activation = Wrapped(self.activation, change)

    patch.setattr(GatedMlp, "__init__", wrong)

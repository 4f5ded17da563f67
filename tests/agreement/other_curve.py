"""The fast engine with another activation: a fault to plant."""

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor, nn

from pellucid.model.mlps import gated

Curve = Callable[[Tensor], Tensor]


class Wrapped(nn.Module):
    def __init__(self, right: Curve, change: Callable[[Curve, Tensor], Tensor]) -> None:
        super().__init__()
        self.right, self.change = right, change

    def forward(self, x: Tensor) -> Tensor:
        return self.change(self.right, x)


def plant(patch: pytest.MonkeyPatch, change: Callable[[Curve, Tensor], Tensor]) -> None:
    """Every gated feed-forward that is made from now on computes `change(right, x)` for `right(x)`."""
    made = gated.Mlp.__init__

    def wrong(self: gated.Mlp, *given: Any) -> None:
        made(self, *given)
        self.curve = Wrapped(self.curve, change)

    patch.setattr(gated.Mlp, "__init__", wrong)

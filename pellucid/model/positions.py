"""Where each token stands: the rows added to the embedding, and the angles that turn queries and keys.

The tables come from `parts/positions/` in float64 and stay in float64 whatever the weights are: a position
times a frequency in half precision is off by whole turns. They are small, and are looked up once a forward.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pellucid.config import ModelConfig
from pellucid.model.taps import tap


class Turn(NamedTuple):
    """Cosines and sines [T D/2] or [B 1 T D/2], and which channels are a pair."""

    cos: Tensor
    sin: Tensor
    layout: str


class Positions(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        if "positions.weight" in config.parameters():
            self.weight = nn.Parameter(torch.empty(config.context_length, config.d_model))
        self.rows: Tensor | None
        self.angles: Tensor | None
        self.register_buffer("rows", None, persistent=False)
        self.register_buffer("angles", None, persistent=False)
        self.make_tables(torch.get_default_device())

    def make_tables(self, device: Any) -> None:
        """The tables for every position of the context, on a device."""
        places = np.arange(self.config.context_length)
        rows = self.config.positions.rows(places, self.config.d_model)
        turn = self.config.positions.turn(places, self.config.d_head)
        self.layout = turn.layout if turn else ""
        self.rows = None if rows is None else torch.as_tensor(rows, dtype=torch.float64, device=device)
        self.angles = None if turn is None else torch.as_tensor(turn.angles, device=device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Positions":
        """Moving the model moves the tables; rounding its weights must not round them."""
        table = self.rows if self.angles is None else self.angles
        self.rows = self.angles = None
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if table is not None:
            self.make_tables(fn(table[:0]).device)
        return self

    def added(self, x: Tensor, positions: Tensor) -> Tensor:
        """The embedding [B T C] with each position's row, where the positions have rows."""
        learned = getattr(self, "weight", None)
        table = self.rows if learned is None else learned
        if table is None:
            return tap("positioned", x)
        rows = tap("position_rows", table[positions].to(x.dtype))
        return tap("positioned", x + rows)

    def turn(self, positions: Tensor, dtype: torch.dtype) -> Turn | None:
        """How far each pair of channels is turned, for positions [T] or [B T]."""
        if self.angles is None:
            return None
        angles = tap("angles", self.angles[positions])
        angles = angles if positions.ndim == 1 else angles[:, None]
        exact = torch.float64 if dtype == torch.float64 else torch.float32
        return Turn(angles.cos().to(exact), angles.sin().to(exact), self.layout)


def rotate(x: Tensor, turn: Turn) -> Tensor:
    """y_i = x_i cos θ − x_partner sin θ for the first of a pair, + for the second; x [B H T D]."""
    halves, wide = turn.layout == "halves", x.to(turn.cos.dtype)
    first, second = wide.chunk(2, -1) if halves else wide.unflatten(-1, (-1, 2)).unbind(-1)
    along = torch.addcmul(first * turn.cos, second, turn.sin, value=-1)
    across = torch.addcmul(second * turn.cos, first, turn.sin)
    turned = torch.cat((along, across), -1) if halves else torch.stack((along, across), -1).flatten(-2)
    return turned.to(x.dtype)

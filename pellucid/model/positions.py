"""Where each token stands: rows added to the embedding, angles that turn queries and keys, biases on scores.

The tables come from `parts/positions/`; they are small, and are looked up once a forward.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pellucid.config import ModelConfig
from pellucid.model.tables import Tables
from pellucid.model.taps import tap


class Turn(NamedTuple):
    """Cosines and sines [T D/2] or [B 1 T D/2], and which channels are a pair."""

    cos: Tensor
    sin: Tensor
    layout: str


class Positions(Tables):
    """Rows and angles."""

    rows: Tensor | None
    angles: Tensor | None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        if shape := config.parameters().get("positions.weight"):
            self.weight = nn.Parameter(torch.empty(shape))
        self.make_tables(torch.get_default_device())

    def tables(self) -> dict[str, Any]:
        places = np.arange(self.config.context_length)
        turn = self.config.positions.turn(places, self.config.d_head)
        self.layout = turn.layout if turn else ""
        rows = self.config.positions.rows(places, self.config.d_model)
        return {"rows": rows, "angles": turn.angles if turn else None}

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


class PositionBias(Tables):
    """What is added to each score for the distance of its positions: a fixed table, or learned rows."""

    table: Tensor | None
    ids: Tensor | None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        if shape := config.parameters().get("position_bias.weight"):
            self.weight = nn.Parameter(torch.empty(shape))
        self.make_tables(torch.get_default_device())

    def tables(self) -> dict[str, Any]:
        """For every distance from −(P − 1) to P − 1."""
        far, positions = self.config.context_length - 1, self.config.positions
        here = np.arange(-far, far + 1) if positions.biased() else np.arange(0)
        return {"table": positions.bias(here, self.config.n_head), "ids": positions.bias_ids(here)}

    def forward(self, queries: Tensor, keys: Tensor, dtype: torch.dtype) -> Tensor | None:
        """[H T S], or [B H T S] where the rows stand at different places."""
        if self.table is None and self.ids is None:
            return None
        far = self.config.context_length - 1
        distances = (queries[..., :, None] - keys[..., None, :]).clamp(-far, far) + far
        if self.table is not None:
            found = self.table[:, distances]
            found = found if found.ndim == 3 else found.transpose(0, 1)
            exact = torch.float64 if dtype == torch.float64 else torch.float32
            return tap("position_bias", found.to(exact))
        assert self.ids is not None
        rows = tap("bias_rows", self.weight[self.ids[distances]])
        return tap("position_bias", rows.movedim(-1, -3))


def rotate(x: Tensor, turn: Turn) -> Tensor:
    """y_i = x_i cos θ − x_partner sin θ for the first of a pair, + for the second; x [B H T D]."""
    halves, wide = turn.layout == "halves", x.to(turn.cos.dtype)
    first, second = wide.chunk(2, -1) if halves else wide.unflatten(-1, (-1, 2)).unbind(-1)
    along = torch.addcmul(first * turn.cos, second, turn.sin, value=-1)
    across = torch.addcmul(second * turn.cos, first, turn.sin)
    turned = torch.cat((along, across), -1) if halves else torch.stack((along, across), -1).flatten(-2)
    return turned.to(x.dtype)

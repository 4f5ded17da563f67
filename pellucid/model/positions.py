"""Where each token stands: rows added to the embedding, angles that turn queries and keys, biases on scores.

The tables come from `parts/positions/`; they are small, and are looked up once a forward.
"""

from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from pellucid.config import ModelConfig
from pellucid.model.tables import Tables
from pellucid.model.taps import is_explicit, tap


class Rotation(NamedTuple):
    """How channels are turned: cosines, and sines with the sign that each of a pair gets, [T …] or [B 1 T …],
    and along which of the two last axes a pair lies: [2 D/2] where it is half a head apart, else [D/2 2]."""

    cos: Tensor
    sin: Tensor
    pair: int

    @classmethod
    def from_cos_sin(cls, cos: Tensor, sin: Tensor, layout: str) -> Self:
        """From cosines and sines [… D/2] of the angles."""
        pair = -2 if layout == "halves" else -1
        return cls(cos.unsqueeze(pair), torch.stack((-sin, sin), pair), pair)


class Positions(Tables):
    """Rows, angles, and [2 T D/2] the angles' cosines and sines in float32: a compiled step would take them
    from float64 again in every head of every layer, which was a quarter of its time."""

    rows: Tensor | None
    angles: Tensor | None
    cos_sin: Tensor | None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        if shape := config.parameters().get("positions.weight"):
            self.weight = nn.Parameter(torch.empty(shape))
        self.make_tables(torch.get_default_device())

    def tables(self) -> dict[str, Any]:
        places = np.arange(self.config.context_length)
        rotation = self.config.positions.rotation(places, self.config.d_head)
        self.layout = rotation.layout if rotation else ""
        rows = self.config.positions.rows(places, self.config.d_model)
        if not rotation:
            return {"rows": rows, "angles": None, "cos_sin": None}
        cos_sin = np.stack((np.cos(rotation.angles), np.sin(rotation.angles))).astype(np.float32)
        return {"rows": rows, "angles": rotation.angles, "cos_sin": cos_sin}

    def added(self, x: Tensor, positions: Tensor) -> Tensor:
        """The embedding [B T C] with each position's row, where the positions have rows."""
        learned = getattr(self, "weight", None)
        table = self.rows if learned is None else learned
        if table is None:
            return tap("positioned", x)
        rows = tap("position_rows", table[positions].to(x.dtype))
        return tap("positioned", x + rows)

    def rotation(self, positions: Tensor, dtype: torch.dtype) -> Rotation | None:
        """How far each pair of channels is turned, for positions [T] or [B T]."""
        if self.angles is None or self.cos_sin is None:
            return None
        positions = positions if positions.ndim == 1 else positions[:, None]  # the same in every head
        if is_explicit() or dtype == torch.float64:
            angles = tap("angles", self.angles[positions])
            exact = torch.float64 if dtype == torch.float64 else torch.float32
            cos, sin = angles.cos().to(exact), angles.sin().to(exact)
        else:
            cos, sin = self.cos_sin[:, positions]
        return Rotation.from_cos_sin(cos, sin, self.layout)


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


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """y_i = x_i cos θ − x_partner sin θ for the first of a pair, + for the second; x [B H T D]."""
    pairs = x.to(rotation.cos.dtype).unflatten(-1, (2, -1) if rotation.pair == -2 else (-1, 2))
    turned = torch.addcmul(pairs * rotation.cos, pairs.flip(rotation.pair), rotation.sin)
    return turned.flatten(-2).to(x.dtype)

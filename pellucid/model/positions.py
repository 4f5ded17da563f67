"""Positions: rows added to the embedding, angles that rotate queries and keys (RoPE), biases of the scores.

The tables come from `parts/positions/`, and are indexed once in each forward pass.
"""

from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from pellucid.config import ModelConfig
from pellucid.model.precision import wide_dtype
from pellucid.model.tables import Tables
from pellucid.model.taps import is_explicit, tap


class Rotation(NamedTuple):
    """Cosines and signed sines of the rotation of each channel pair, [T …] or [B 1 T …].

    `pair` is the axis of a head's channels that holds the two of a pair, once they are split into [2 D/2]
    ("halves", axis −2) or [D/2 2] ("pairs", axis −1). The sines are −sin for the first of a pair and +sin for
    the second.
    """

    cos: Tensor
    sin: Tensor
    pair: int

    @classmethod
    def from_cos_sin(cls, cos: Tensor, sin: Tensor, layout: str) -> Self:
        """Returns the rotation by the angles with these cosines and sines [… D/2]."""
        pair = -2 if layout == "halves" else -1
        return cls(cos.unsqueeze(pair), torch.stack((-sin, sin), pair), pair)


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Returns y_i = x_i cos θ − x_j sin θ and y_j = x_j cos θ + x_i sin θ for each pair (i, j); x [B H T
    D]."""
    pairs = x.to(rotation.cos.dtype).unflatten(-1, (2, -1) if rotation.pair == -2 else (-1, 2))
    rotated = torch.addcmul(pairs * rotation.cos, pairs.flip(rotation.pair), rotation.sin)
    return rotated.flatten(-2).to(x.dtype)


class Positions(Tables):
    """Rows added to the embedding, and RoPE's angles [P D/2] with their cosines and sines [2 P D/2] in
    float32.

    Cosines and sines are a table because a compiled step would otherwise compute them from float64 angles in
    every head of every layer, a quarter of its time.
    """

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
        positions = np.arange(self.config.context_length)
        rotation = self.config.positions.rotation(positions, self.config.d_head)
        self.layout = rotation.layout if rotation else ""
        rows = self.config.positions.rows(positions, self.config.d_model)
        if not rotation:
            return {"rows": rows, "angles": None, "cos_sin": None}
        cos_sin = np.stack((np.cos(rotation.angles), np.sin(rotation.angles))).astype(np.float32)
        return {"rows": rows, "angles": rotation.angles, "cos_sin": cos_sin}

    def add_to(self, x: Tensor, positions: Tensor) -> Tensor:
        """Returns the embeddings x [B T C] plus the row of each position, if the config's positions have
        rows."""
        learned = getattr(self, "weight", None)
        table = self.rows if learned is None else learned
        if table is None:
            return tap("positioned", x)
        dtype = x.dtype if learned is not None else wide_dtype(x.dtype)  # a fixed table is rounded in the sum
        rows = tap("position_rows", table[positions].to(dtype))
        return tap("positioned", (x + rows).to(x.dtype))

    def rotation(self, positions: Tensor, dtype: torch.dtype) -> Rotation | None:
        """Returns the rotation of queries and keys at positions [T] or [B T]; None without RoPE."""
        if self.angles is None or self.cos_sin is None:
            return None
        positions = positions if positions.ndim == 1 else positions[:, None]  # the same in every head
        if is_explicit() or dtype == torch.float64:
            angles = tap("angles", self.angles[positions])
            wide = wide_dtype(dtype)
            cos, sin = angles.cos().to(wide), angles.sin().to(wide)
        else:
            cos, sin = self.cos_sin[:, positions]
        return Rotation.from_cos_sin(cos, sin, self.layout)


class PositionBias(Tables):
    """The bias of each score, by the distance between query and key: from factors, a fixed table, or learned
    rows."""

    factors: Tensor | None
    table: Tensor | None
    ids: Tensor | None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        if shape := config.parameters().get("position_bias.weight"):
            self.weight = nn.Parameter(torch.empty(shape))
        self.make_tables(torch.get_default_device())

    def tables(self) -> dict[str, Any]:
        """Returns the factors [H], or the tables for every distance from −(P − 1) to P − 1."""
        last, positions = self.config.context_length - 1, self.config.positions
        factors = positions.bias_factors(self.config.n_head)
        if factors is not None or not positions.has_bias:
            return {"factors": factors, "table": None, "ids": None}
        distances = np.arange(-last, last + 1)
        table, ids = positions.bias(distances, self.config.n_head), positions.bias_ids(distances)
        return {"factors": None, "table": table, "ids": ids}

    def forward(self, queries: Tensor, keys: Tensor, dtype: torch.dtype) -> Tensor | None:
        """Returns the bias [H T S], or [B H T S] for positions [B T]; None if the positions have none."""
        if self.factors is None and self.table is None and self.ids is None:
            return None
        last = self.config.context_length - 1
        distances = (queries[..., :, None] - keys[..., None, :]).clamp(-last, last)
        if self.factors is not None:
            bias = self.factors[:, None, None] * -distances.abs().unsqueeze(-3)
            return tap("position_bias", bias.to(wide_dtype(dtype)))
        if self.table is not None:
            bias = self.table[:, distances + last]
            bias = bias if bias.ndim == 3 else bias.transpose(0, 1)
            return tap("position_bias", bias.to(wide_dtype(dtype)))
        assert self.ids is not None
        rows = tap("bias_rows", self.weight[self.ids[distances + last]])
        return tap("position_bias", rows.movedim(-1, -3))

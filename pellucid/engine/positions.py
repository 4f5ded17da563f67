"""Positions: rows added to the embedding, angles that rotate queries and keys (RoPE), biases of the scores.

The tables come from `parts/positions/`, and are indexed once in each forward pass. They hold the positions
that were used so far, not the whole context: a config may declare millions.
"""

from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from pellucid.config import ModelConfig
from pellucid.engine.device_memory import check_memory
from pellucid.engine.precision import wide_dtype
from pellucid.engine.tables import Tables
from pellucid.engine.taps import is_explicit, tap

FIRST_POSITIONS = 256
"""Positions of new tables; more are made when a text needs them, at least twice as many as before."""
BUILDING = 3
"""Times its own size that a table takes while it is made."""


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


class PositionTables(Tables):
    """Tables with an entry for each of the first `covered` positions of the context, or for each distance
    between them; an entry does not depend on how many there are."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.covered = min(FIRST_POSITIONS, config.context_length)
        self.has_tables = False
        """Whether the config's positions have any of these tables; without, every position is covered."""

    def make_tables(self, device: Any) -> None:
        super().make_tables(device)
        self.has_tables = next(self.buffers(recurse=False), None) is not None

    def tables(self) -> dict[str, Any]:
        return self.tables_of(self.covered)

    def tables_of(self, count: int) -> dict[str, Any]:
        """Returns every table for the first `count` positions, by name."""
        raise NotImplementedError

    def cover(self, count: int) -> None:
        """Makes the tables reach to at least the first `count` positions, as far as the context does."""
        if count > self.covered and self.has_tables:
            grow = self._grow
            if torch.compiler.is_compiling():  # a decorator would import the compiler with this module
                grow = torch.compiler.disable(grow)
            grow(count)

    def _grow(self, count: int) -> None:
        count = min(max(count, 2 * self.covered), self.config.context_length)
        device = self.device_marker.device
        needed = sum(table.nbytes for table in self.buffers(recurse=False)) * count // self.covered
        check_memory(
            BUILDING * needed, f"tables of {count:,} positions", "read a shorter text", "cpu", device
        )
        self.set_tables(self.tables_of(count), device)
        self.covered = count  # only now: another thread may be reading the tables


class Positions(PositionTables):
    """Rows added to the embedding, and RoPE's angles [P D/2] with their cosines and sines [2 P D/2] in
    float32.

    Cosines and sines are a table because a compiled step would otherwise compute them from float64 angles in
    every head of every layer, a quarter of its time.
    """

    rows: Tensor | None
    angles: Tensor | None
    cos_sin: Tensor | None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        if shape := config.parameters().get("positions.weight"):
            self.weight = nn.Parameter(torch.empty(shape))
        self.make_tables(torch.get_default_device())

    def tables_of(self, count: int) -> dict[str, Any]:
        positions = np.arange(count)
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


class PositionBias(PositionTables):
    """The bias of each score, by the distance between query and key: from factors, a fixed table, or learned
    rows."""

    factors: Tensor | None
    table: Tensor | None
    ids: Tensor | None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        if shape := config.parameters().get("position_bias.weight"):
            self.weight = nn.Parameter(torch.empty(shape))
        self.make_tables(torch.get_default_device())

    def tables_of(self, count: int) -> dict[str, Any]:
        """Returns the factors [H], or the tables for every distance from −(P − 1) to P − 1."""
        last, positions = count - 1, self.config.positions
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
        distances = queries[..., :, None] - keys[..., None, :]
        if self.factors is not None:
            last = self.config.context_length - 1
            bias = self.factors[:, None, None] * -distances.clamp(-last, last).abs().unsqueeze(-3)
            return tap("position_bias", bias.to(wide_dtype(dtype)))
        if (table := self.table) is not None:
            bias = table[:, _to_entries(distances, table.shape[1])]
            bias = bias if bias.ndim == 3 else bias.transpose(0, 1)
            return tap("position_bias", bias.to(wide_dtype(dtype)))
        ids = self.ids
        assert ids is not None
        rows = tap("bias_rows", self.weight[ids[_to_entries(distances, len(ids))]])
        return tap("position_bias", rows.movedim(-1, -3))


def _to_entries(distances: Tensor, count: int) -> Tensor:
    """Returns the places of distances in a table of `count` of them, with 0 in its middle; beyond its ends
    are only those to keys that the mask hides."""
    return (distances + count // 2).clamp(0, count - 1)

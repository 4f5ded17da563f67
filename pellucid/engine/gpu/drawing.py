"""Draws of tokens on the device: what `selection.py` reads and writes.

The definition is the host's (`generation/samplers/drawn_token.py`): tokens in order of score, the largest
first, of equals the smaller id first; the drawn one is the first whose cumulative probability exceeds u. The
numbers u are the host's as well, written ahead of the steps. Weights are rounded to 2⁻⁴⁵ of the largest, so a
draw can differ where u lies within V · 2⁻⁴⁵ of a border.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pellucid.parts.samplers import SMALLEST_MASS

BINS = 4096
"""Parts of the range of scores in which tokens are counted."""
DRAWN = ("temperature", "top_k", "top_p", "min_p")
"""The samplers that have a form here."""


class DrawSettings(NamedTuple):
    """A row's samplers, each at the value that keeps every token where it has none."""

    temperature: float = 1.0
    top_k: int = 2**31 - 1
    top_p: float = 1.0
    min_p: float = 0.0


GREEDY = DrawSettings(top_p=SMALLEST_MASS)
"""Of tokens with the same score the first is taken, which top-k would not do."""


class DrawBuffers:
    """The settings [4 most] of every row, its next numbers u [ring most], and what finding a token needs."""

    def __init__(self, vocab_size: int, most: int, ring: int, device: torch.device) -> None:
        def make(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.settings = make(len(DRAWN), most, dtype=torch.float64)
        self.u = make(ring, most, dtype=torch.float64)
        self.counts, self.ends = (make(most, BINS, dtype=torch.int32) for _ in range(2))
        self.weights, self.kept = make(most, BINS, dtype=torch.int64), make(most, dtype=torch.int64)
        self.order = make(most, vocab_size, dtype=torch.int32)

    def write(self, rows: Sequence[DrawSettings | None]) -> None:
        """Writes the settings of the first rows; None is greedy."""
        given = torch.tensor([row or GREEDY for row in rows], dtype=torch.float64).T.contiguous()
        given[DRAWN.index("top_p")].clamp_(min=SMALLEST_MASS)
        self.settings[:, : len(rows)].copy_(given)

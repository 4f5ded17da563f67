"""Draws of tokens on the device: temperature, top-k, top-p and min-p in float64, as on the host.

The tokens stand in order of score, the largest first, of equals the smaller id first; the drawn one is the
first whose cumulative probability exceeds u (`generation/samplers/drawn_token.py`). The numbers u are the
host's, written ahead of the steps. Sums run in another order than on the host, so a draw can differ where u
lies within float64 rounding of a border.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pellucid.parts.samplers import SMALLEST_MASS

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
    """The settings [most 1] of every row, and its next numbers u [ring most]."""

    def __init__(self, most: int, ring: int, device: torch.device) -> None:
        self.settings = torch.zeros(len(DRAWN), most, 1, dtype=torch.float64, device=device)
        self.write([None] * most)  # every row of a step draws something, also one without a text
        self.u = torch.zeros(ring, most, dtype=torch.float64, device=device)

    def write(self, rows: Sequence[DrawSettings | None]) -> None:
        """Writes the settings of the first rows; None is greedy."""
        given = torch.tensor([row or GREEDY for row in rows], dtype=torch.float64).T.contiguous()
        given[DRAWN.index("top_p")].clamp_(min=SMALLEST_MASS)
        self.settings[:, : len(rows), 0].copy_(given)


def draw(logits: Tensor, steps: Tensor, buffers: DrawBuffers, chosen: Tensor) -> None:
    """Writes the drawn token of each row of logits [B V] to `chosen` [B], any token where one is NaN; nothing
    here waits for the host."""
    count, size = logits.shape
    temperature, top_k, top_p, min_p = buffers.settings[:, :count]
    scores, ids = torch.sort(logits, dim=-1, descending=True, stable=True)
    scores = scores.double()
    scores = (scores - scores[:, :1]) / temperature
    last = top_k.clamp(1, size).long() - 1
    scores = scores.masked_fill(scores < scores.gather(1, last), -torch.inf)
    probs = scores.softmax(-1)
    before = probs.cumsum(-1).roll(1, -1)
    before[:, 0] = 0.0
    scores = scores.masked_fill((before >= top_p) & (top_p < 1), -torch.inf)
    probs = scores.softmax(-1)
    scores = scores.masked_fill(probs < min_p * probs[:, :1], -torch.inf)
    reached = scores.softmax(-1).cumsum(-1)
    u = buffers.u.gather(0, (steps[None, :count] % len(buffers.u)).long())[0, :, None]
    last = (scores[:, 1:] > -torch.inf).sum(-1, keepdim=True)  # 0 where logits are NaN, and none is kept
    place = torch.minimum((reached <= u).sum(-1, keepdim=True), last)
    chosen[:count].copy_(ids.gather(1, place)[:, 0])

"""The samplers of a request in their order, and the choice of a token from what they leave.

    states = [ChainState(chain) for _ in range(n)]
    choose(logits, states)          # one token for each row of logits [B V]

A state holds what the samplers of one text depend on, the tokens so far, so that a text can be forked, and
a row's choice depends on nothing but its own logits, state and seed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid.errors import PellucidError, UsageError
from pellucid.generation.entry import Entry
from pellucid.generation.sampling import Sampling


@dataclass(frozen=True)
class Chain:
    """The samplers of one request."""

    sampling: Sampling
    prompt: tuple[int, ...]
    vocab_size: int
    stop_ids: frozenset[int]
    seed: int


@dataclass
class ChainState:
    """One text of a request: which choice it is, and its new tokens."""

    chain: Chain
    choice: int = 0
    new: list[int] = field(default_factory=list)

    def append(self, id: int) -> None:
        self.new.append(id)

    def fork(self, choice: int | None = None) -> "ChainState":
        """Returns a copy that goes on by itself."""
        return ChainState(self.chain, self.choice if choice is None else choice, list(self.new))


class Chosen(NamedTuple):
    id: int
    logprob: float | None = None
    entry: Entry | None = None


def draw_uniform(seed: int, choice: int, step: int) -> float:
    """Returns the number u in [0, 1) of a token: a pure function of the seed, the choice and the number of
    new tokens before it, so that a text does not depend on what is drawn beside it.

    >>> draw_uniform(7, 0, 3) == draw_uniform(7, 0, 3) != draw_uniform(7, 0, 4)
    True
    """
    key = np.array([seed % 2**64, choice], np.uint64)
    raw = np.random.Philox(key=key, counter=[step, 0, 0, 0]).random_raw()
    return float((int(raw) >> 11) * 2.0**-53)


def process(logits: Tensor, states: Sequence[ChainState]) -> Tensor:
    """Returns the scores [B V] in float64 after every sampler; −∞ where a token was removed."""
    temperatures = torch.tensor([state.chain.sampling.temperature for state in states], dtype=torch.float64)
    return logits.double() / temperatures.clamp_min(1e-300)[:, None].to(logits.device)


def choose(
    logits: Tensor,
    states: Sequence[ChainState],
    *,
    record: Sequence[bool] = (),
    logprobs: Sequence[bool] = (),
) -> list[Chosen | PellucidError]:
    """Returns the token of each row of logits [B V], or the error that ends its request alone."""
    largest, ids = logits.max(-1)
    chosen: list[Chosen | PellucidError] = []
    for row, (top, id, state) in enumerate(zip(largest.tolist(), ids.tolist(), states, strict=True)):
        if not math.isfinite(top):
            chosen.append(UsageError("the model's logits are NaN or Inf: try another dtype, or `verify`."))
        elif state.chain.sampling.temperature == 0:
            chosen.append(Chosen(id))
        else:
            scores = process(logits[row : row + 1], [state])[0]
            order = scores.sort(descending=True, stable=True)
            reached = torch.softmax(order.values, -1).cumsum(-1)
            u = draw_uniform(state.chain.seed, state.choice, len(state.new)) * float(reached[-1])
            place = int(torch.searchsorted(reached, u, right=True).clamp_max(len(reached) - 1))
            chosen.append(Chosen(int(order.indices[place])))
    return chosen

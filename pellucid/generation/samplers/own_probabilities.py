"""Probabilities by the model's own logits, before every sampler: ln p, the most probable tokens, the
entropy and the rank."""

from collections.abc import Iterator
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pellucid.parts.samplers import Table

if TYPE_CHECKING:  # a server's HTTP process reads requests and never imports torch
    from torch import Tensor

TopLogprobs = tuple[tuple[int, float], ...]
"""The most probable tokens with ln p, the largest first, of equals the smaller id first."""


class TokenUncertainty(NamedTuple):
    """How sure the model was, and how probable the token that was chosen."""

    entropy: float
    """−Σ p ln p, in nats."""
    rank: int
    """Of the token's logit, from 0."""
    surprisal: float
    """−ln p of the token."""


def compute_logprobs(logits: "Tensor") -> "Tensor":
    """Returns ln softmax of one row of logits [V], in float64. Rows that are computed together differ in
    their last bits by how many they are, so that each is computed by itself."""
    return logits.double().log_softmax(-1)


def find_top(logprobs: "Tensor", count: int) -> TopLogprobs:
    """Returns the `count` most probable tokens of a row [V]; fewer where others have the probability 0.

    >>> import torch
    >>> find_top(torch.tensor([-3.0, -1.0, -2.0, -1.0]), 3)
    ((1, -1.0), (3, -1.0), (2, -2.0))
    """
    return tuple((id, logprob) for logprob, id in islice(rank_places(logprobs, count), count))


def measure_uncertainty(logits: Table, logprobs: Table, id: int) -> TokenUncertainty:
    """Returns the uncertainty of a token that was chosen where the logits [V] had these log-probabilities."""
    probs = np.exp(logprobs)
    return TokenUncertainty(
        entropy=-float((probs * np.where(probs > 0, logprobs, 0.0)).sum()),
        rank=int((logits > logits[id]).sum() + (logits[:id] == logits[id]).sum()),
        surprisal=-float(logprobs[id]),
    )


def rank_places(scores: "Tensor", expected: int) -> Iterator[tuple[float, int]]:
    """Yields the scores above −∞ with their places, the largest first, of equals the smaller place first;
    `expected` is how many the caller is likely to take.

    >>> import torch
    >>> list(rank_places(torch.tensor([-2.0, -1.0, -inf, -1.0]), 1))
    [(-1.0, 1), (-1.0, 3), (-2.0, 0)]
    """
    ranked = 0
    while ranked < len(scores):
        smallest = scores.topk(min(max(expected, 2 * ranked), len(scores))).values[-1]
        is_ahead = scores > smallest if smallest == -inf else scores >= smallest
        places = is_ahead.nonzero()[:, 0]
        order = scores[places].sort(descending=True, stable=True)
        yield from zip(order.values.tolist()[ranked:], places[order.indices].tolist()[ranked:], strict=True)
        if smallest == -inf:
            return
        ranked = len(places)

"""The draw of a token from a row of scores: its random number, the token, and its record.

The tokens stand in order of score, the largest first, of equals the smaller id first; the drawn one is the
first whose cumulative probability exceeds u. Only as many tokens are sorted as that takes.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid.generation.ledger.entry import (
    MOST_CANDIDATES,
    SHOWN_CANDIDATES,
    SHOWN_REMOVED,
    Candidate,
    Entry,
    Removal,
    compute_log_normalizer,
    compute_probability,
)
from pellucid.generation.samplers.kept_scores import FEW
from pellucid.generation.samplers.own_probabilities import compute_logprobs, measure_uncertainty
from pellucid.generation.samplers.row_operations import Ranking, rank_first, to_array
from pellucid.parts.samplers import Table
from pellucid.reference.ops.sampling import sort_tokens

MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
INCREMENTS = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
"""Of the key, from round to round: the golden ratio and √3 − 1."""
ROUNDS = 10
MASK = 2**64 - 1


def draw_uniform(seed: int, choice: int, step: int) -> float:
    """Returns the number u in [0, 1) of a token: a pure function of the seed, the choice and the number of
    new tokens before it, so that a text does not depend on what is drawn beside it.

    >>> draw_uniform(7, 0, 3) == draw_uniform(7, 0, 3) != draw_uniform(7, 0, 4)
    True
    """
    return (draw_bits((seed % 2**64, choice), step + 1) >> 11) * 2.0**-53


def draw_uniforms(seed: int, choice: int, start: int, count: int) -> Table:
    """Returns the numbers u [count] of successive tokens, the first after `start` new ones.

    >>> draw_uniforms(7, 0, 3, 2).tolist() == [draw_uniform(7, 0, 3), draw_uniform(7, 0, 4)]
    True
    """
    key = np.array([seed % 2**64, choice], np.uint64)
    raw = np.random.Philox(key=key, counter=[start, 0, 0, 0]).random_raw(4 * count)[::4]
    return (raw >> np.uint64(11)) * 2.0**-53


def draw_bits(key: tuple[int, int], counter: int) -> int:
    """Returns 64 random bits by Philox4x64-10, a counter-based generator: a number is a function of a key and
    a counter.

    Salmon, Moraes, Dror and Shaw 2011, Parallel random numbers: as easy as 1, 2, 3. It is `np.random.Philox`,
    which takes longer to make than one of its numbers.

    >>> import numpy as np
    >>> own = draw_bits((7, 1), 5)
    >>> own == np.random.Philox(key=[7, 1], counter=[4, 0, 0, 0]).random_raw()  # it counts, then computes
    True
    """
    first, second = key
    a, b, c, d = counter & MASK, counter >> 64, 0, 0
    for _ in range(ROUNDS):
        left, right = MULTIPLIERS[0] * a, MULTIPLIERS[1] * c
        a, b, c, d = right >> 64 ^ b ^ first, right & MASK, left >> 64 ^ d ^ second, left & MASK
        first, second = first + INCREMENTS[0] & MASK, second + INCREMENTS[1] & MASK
    return a


class DrawnToken(NamedTuple):
    """A drawn token: its place among the first tokens in order of score."""

    place: int
    u: float | None
    ranking: Ranking
    scores: Table
    """Of the tokens of the ranking."""
    kept: int
    log_normalizer: float

    @property
    def id(self) -> int:
        return int(self.ranking.ids[self.place])


def draw_token(scores: Tensor, u: float | None, least: int = 1) -> DrawnToken | None:
    """Returns the token of a row of scores [V], for greedy decoding (u is None) the first; None where every
    score is −∞. Its ranking has at least `least` tokens, where as many are kept."""
    values = to_array(scores)
    (kept,) = np.nonzero(values > -np.inf)
    if not len(kept):
        return None
    if len(kept) > FEW:
        ranking = rank_first(values, to_array(scores.softmax(-1)), u or 0.0, least)
        log_normalizer = values[ranking.ids[0]] - np.log(ranking.probs[0])
    else:
        ids = kept[sort_tokens(values[kept])]
        probs, total = normalize_sorted(values[ids])
        ranking = Ranking(ids, probs, np.cumsum(probs))
        log_normalizer = values[ids[0]] + np.log(total)
    place = 0 if u is None else find_place(ranking.reached, u)
    return DrawnToken(place, u, ranking, values[ranking.ids], len(kept), float(log_normalizer))


def draw_id(scores: Tensor, u: float | None) -> int | None:
    """Returns the id that `draw_token` draws, from the same sums. Scores are sorted without their ids, in a
    third of the time; of the tokens with the drawn score, the one at its place among them is taken."""
    values = to_array(scores)
    if u is None and math.isfinite(values[id := int(values.argmax())]):
        return id
    kept = values[values > -np.inf]
    if u is None or not 0 < len(kept) <= FEW:
        drawn = draw_token(scores, u)
        return None if drawn is None else drawn.id
    rising = np.sort(-kept)
    probs, _ = normalize_sorted(-rising)
    place = find_place(np.cumsum(probs), u)
    first = int(np.searchsorted(rising, rising[place]))
    return int(np.flatnonzero(values == -rising[place])[place - first])


def normalize_sorted(scores: Table) -> tuple[Table, float]:
    """Returns the probabilities of scores in falling order, softmax(s), and Σ e^(s − max s)."""
    exps = np.exp(scores - scores[0])
    total = exps.sum()
    return exps / total, total


def find_place(reached: Table, u: float) -> int:
    """Returns the first place whose cumulative probability exceeds u; rounding may leave the last below 1."""
    below = min(u, math.nextafter(float(reached[-1]), 0.0))
    return int(np.searchsorted(reached, below, side="right"))


def find_removals(sampler: str, before: Tensor, after: Tensor) -> Iterator[Removal]:
    """Yields what a sampler removed from a row of scores [V], if anything."""
    scores = to_array(before)
    (gone,) = np.nonzero((scores > -np.inf) & (to_array(after) == -np.inf))
    if len(gone):
        mass, values = to_array(before.softmax(-1))[gone].sum(), torch.from_numpy(scores[gone])
        last = float(values.topk(min(SHOWN_REMOVED, len(gone))).values[-1])
        first = gone[scores[gone] >= last]
        first = first[sort_tokens(scores[first])[:SHOWN_REMOVED]]
        yield Removal(sampler, len(gone), float(mass), tuple(first.tolist()))


def make_entry(logits: Tensor, drawn: DrawnToken, removed: Sequence[Removal]) -> Entry:
    """Returns the record of a token that was drawn after these logits [V]."""
    values, logprobs = to_array(logits.double()), to_array(compute_logprobs(logits))
    id, own = drawn.id, measure_uncertainty(values, logprobs, drawn.id)
    shown = min(max(drawn.place + 1, SHOWN_CANDIDATES), MOST_CANDIDATES)
    columns = (drawn.ranking.ids, values[drawn.ranking.ids], drawn.scores)
    ids, own_logits, scores = (column[:shown].tolist() for column in columns)
    # a replay computes from the listed numbers: where they are all, so does this
    is_whole = len(ids) == drawn.kept
    log_normalizer = compute_log_normalizer(scores) if is_whole else drawn.log_normalizer
    return Entry(
        id=id,
        u=drawn.u,
        logit=float(values[id]),
        probability=compute_probability(float(drawn.scores[drawn.place]), log_normalizer),
        rank=own.rank,
        surprisal=own.surprisal,
        entropy=own.entropy,
        candidates=tuple(
            Candidate(*row, compute_probability(row[2], log_normalizer))
            for row in zip(ids, own_logits, scores, strict=True)
        ),
        kept=drawn.kept,
        log_normalizer=log_normalizer,
        removed=tuple(removed),
    )

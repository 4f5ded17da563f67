"""The record of one chosen token: its candidates, what each sampler removed, the draw and the choice."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Candidate:
    """A token that could have been chosen."""

    id: int
    logit: float
    """As the model computed it, before every sampler."""
    score: float
    """After every sampler: the probability is e^score / Σ e^score over the kept tokens."""
    probability: float


@dataclass(frozen=True)
class Removal:
    """The tokens that one sampler of the chain removed."""

    sampler: str
    count: int
    mass: float
    """Their probability, e^s / Σ e^s, over the scores that the sampler was given."""
    ids: tuple[int, ...]
    """The most probable of them, at most `SHOWN_REMOVED`."""


@dataclass(frozen=True)
class Entry:
    """One emitted token.

    The draw is the inverse of the cumulative distribution in order of rank: the kept tokens are sorted by
    score, the largest first, of equals the smaller id first, and the token is the first whose cumulative
    probability exceeds u. `candidates` are in that order, at least down to the chosen token unless its rank
    is beyond `MOST_CANDIDATES`.
    """

    id: int
    u: float | None
    """The uniform random number, from `draw_uniform(seed, choice, step)`; None for greedy decoding."""
    logit: float
    probability: float
    """With which it was drawn: after every sampler."""
    rank: int
    """Of its logit among the model's own, from 0."""
    surprisal: float
    """−ln p, where p = softmax of the model's own logits."""
    entropy: float
    """−Σ p ln p of the same, in nats."""
    candidates: tuple[Candidate, ...]
    kept: int
    """The number of tokens that no sampler removed."""
    log_normalizer: float
    """ln Σ e^score over the kept tokens."""
    removed: tuple[Removal, ...] = ()
    note: str = ""
    """What else happened at this token: the context was cropped, a draft was accepted."""


SHOWN_CANDIDATES = 10
"""Candidates that an entry has at least, where as many tokens are kept."""
MOST_CANDIDATES = 1000
SHOWN_REMOVED = 5

"""The records of a generation: of one chosen token, its candidates, what each sampler removed, the draw and
the choice; of one node of a beam search; of one speculative step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise


@dataclass(frozen=True)
class Candidate:
    """A token that could have been chosen."""

    id: int
    logit: float
    """As the model computed it, before every sampler."""
    score: float
    """After every sampler: the probability is e^score / Σ e^score over the kept tokens."""
    probability: float
    """`compute_probability(score, log_normalizer)`, so that a replay computes the same bits."""


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


def compute_probability(score: float, log_normalizer: float) -> float:
    """Returns e^(score − log_normalizer)."""
    return math.exp(min(score - log_normalizer, 1.0))


def compute_log_normalizer(scores: Sequence[float]) -> float:
    """Returns ln Σ e^score; the sum is exactly rounded, so that it does not depend on the order."""
    top = max(scores)
    return top + math.log(math.fsum(math.exp(score - top) for score in scores))


def compute_intervals(entry: Entry) -> dict[int, tuple[float, float]]:
    """Returns of each candidate the interval of u in which it is chosen: from the cumulative probability of
    those before it to that with its own."""
    ends = list(accumulate(one.probability for one in entry.candidates))
    return {one.id: pair for one, pair in zip(entry.candidates, pairwise([0.0, *ends]), strict=True)}


FATES = ("kept", "pruned", "finished")
"""Of a node: its beam goes on, was given up, or ended."""


@dataclass(frozen=True)
class BeamNode:
    """One token of a beam search. The tree is a tuple of them, parents before their children; a step's nodes
    stand together, the largest score first."""

    parent: int
    """The place of its parent in the tree; −1 for the first new tokens, which follow the prompt."""
    id: int
    logprob: float
    """ln p of the token given those before it, after every sampler."""
    score: float
    """The sum of the log-probabilities from the first new token to this one: the parent's score + logprob."""
    fate: str
    """One of `FATES`. A step's nodes that did not end compete: the `beams` with the largest scores are kept,
    and the next ones are listed as pruned."""
    penalty: float | None = None
    """length ** length_penalty, where length counts the new tokens up to this one; None unless its beam ended
    here, by a stop token or because no more tokens may follow."""
    final: float | None = None
    """score / penalty, by which ended beams are ranked."""


PROPOSERS = ("draft", "lookup")
"""What proposed tokens: a draft model, or the text that followed the same tokens earlier."""


@dataclass(frozen=True)
class SpeculativeStep:
    """One forward pass of the target model over several proposed tokens.

    The target draws its own token at each place, with the same u as without proposals. A proposal is accepted
    where it is that token and every one before it was accepted. So the step emits its first `accepted`
    proposals and one token more, unless the text ends before.
    """

    step: int
    """The number of new tokens before it."""
    proposer: str
    """One of `PROPOSERS`."""
    proposed: tuple[int, ...]
    accepted: int


NOT_IN_LEDGER = {"is_recorded": False}
"""The metadata of a field of a record that no ledger has."""
SHOWN_CANDIDATES = 10
"""Candidates that an entry has at least, where as many tokens are kept."""
MOST_CANDIDATES = 1000
SHOWN_REMOVED = 5

"""Beam search: at each step the most probable continuations of a few texts at once.

    search = BeamSearch(beams=4, max_new_tokens=20, stop_ids=frozenset({2}))
    while not search.is_done:
        for beam in search.step(scores): ...    # scores [len(search.running) V]: ln p of each token
    search.best(n)

A step adds ln p of every token to the total of every running beam and ranks the sums, the largest first, of
equals the smaller parent first, then the smaller id. Of the first `beams`, those that end are hypotheses; the
first `beams` that do not end run on. So a hypothesis takes a place among the best and never the place of a
running beam, as in transformers.

The score of a hypothesis is Σ ln p / length^length_penalty over its new tokens alone, a stop token included
in the sum and in the length. With `early_stopping` the search ends with `beams` hypotheses. Without it the
search ends as soon as no running beam can still be among the best n: with more tokens a total only falls, so
the largest score within reach is total / max_new_tokens^length_penalty, or for a negative penalty
total / (length + 1)^length_penalty.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from pellucid.base.errors import UsageError
from pellucid.generation.ledger.entry import BeamNode
from pellucid.generation.samplers.own_probabilities import rank_places


class Beam(NamedTuple):
    """A running text: its parent's place among the beams before it, and its new tokens."""

    parent: int
    ids: tuple[int, ...]
    total: float
    """Σ ln p over the new tokens."""
    node: int = -1
    """The place of its last token in the tree."""

    @property
    def id(self) -> int:
        return self.ids[-1]


class Hypothesis(NamedTuple):
    """A finished text."""

    parent: int
    ids: tuple[int, ...]
    total: float
    score: float
    """total / len(ids)^length_penalty."""
    finish: str
    """Why it ended: one of `FINISH_REASONS`."""
    node: int


@dataclass
class BeamSearch:
    """The search for the best continuations of one prompt, given the log-probabilities of each step."""

    beams: int
    max_new_tokens: int
    n: int = 1
    """The number of hypotheses wanted, at most `beams`."""
    length_penalty: float = 1.0
    early_stopping: bool = False
    stop_ids: frozenset[int] = frozenset()
    totals_only_fall: bool = True
    """Whether no score is above 0. False, where a sampler raises log-probabilities: then only
    `max_new_tokens` bounds what a running beam can reach, and the search goes on to it."""
    running: list[Beam] = field(default_factory=lambda: [Beam(0, (), 0.0)])
    finished: list[Hypothesis] = field(default_factory=list)
    """The best `beams` hypotheses, the best first, of equals the earlier."""
    length: int = 0
    """New tokens of each running beam."""
    tree: list[BeamNode] = field(default_factory=list)
    """What was kept and what ended, and of what was given up the first that were ranked after it."""

    def __post_init__(self) -> None:
        if not 1 <= self.n <= self.beams:
            raise UsageError(f"n must be from 1 to the number of beams, {self.beams}; got {self.n}.")

    @property
    def is_done(self) -> bool:
        if not self.running or self.length >= self.max_new_tokens:
            return True
        if self.early_stopping:
            return len(self.finished) == self.beams
        return len(self.finished) >= self.n and self.reachable_score <= self.finished[self.n - 1].score

    @property
    def reachable_score(self) -> float:
        """The largest score that a running beam can still reach."""
        if not self.totals_only_fall:
            return math.inf
        length = self.max_new_tokens if self.length_penalty >= 0 else self.length + 1
        return self.running[0].total / math.pow(length, self.length_penalty)

    def best(self, n: int | None = None) -> list[Hypothesis]:
        """Returns the best n hypotheses, the best first."""
        return self.finished[: self.n if n is None else n]

    def step(
        self, scores: Tensor, find_end: Callable[[int, int], str | None] | None = None
    ) -> tuple[list[Beam], list[Hypothesis]]:
        """Continues each running beam by one token; returns the beams that now run and the new hypotheses.

        `scores` [R V] are ln p of the next token for each running beam, −∞ where it is not allowed. A token
        ends its text if it is a stop token, if it is the last that fits, or if `find_end(parent, id)` gives a
        reason.
        """
        if bool(scores.isnan().any()):
            raise UsageError("a score of a beam is NaN: try another dtype, or `pellucid verify`.")
        before = torch.tensor([beam.total for beam in self.running], dtype=torch.float64)
        scores = scores.double()
        totals = (scores + before.to(scores.device)[:, None]).flatten()
        self.length += 1
        is_last = self.length == self.max_new_tokens
        penalty = math.pow(self.length, self.length_penalty)
        running: list[Beam] = []
        ended: list[Hypothesis] = []
        for rank, (total, place) in enumerate(rank_places(totals, self.beams * (2 + len(self.stop_ids)))):
            if rank >= 2 * self.beams and (is_last or len(running) == self.beams):
                break
            parent, id = divmod(place, scores.shape[-1])
            finish = "stop" if id in self.stop_ids else find_end(parent, id) if find_end else None
            finish = finish or ("length" if is_last else None)
            ids, node = (*self.running[parent].ids, id), len(self.tree)
            if finish is not None and rank >= self.beams:
                continue
            record = BeamNode(self.running[parent].node, id, float(scores[parent, id]), total, "pruned")
            if finish is not None:
                score = total / penalty
                ended.append(Hypothesis(parent, ids, total, score, finish, node))
                record = replace(record, fate="finished", penalty=penalty, final=score)
            elif len(running) < self.beams:
                running.append(Beam(parent, ids, total, node))
                record = replace(record, fate="kept")
            self.tree.append(record)
        self.running = running
        self.finished = sorted(self.finished + ended, key=lambda one: -one.score)[: self.beams]
        return running, ended

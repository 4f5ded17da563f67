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

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from pellucid.base.errors import PellucidError, UsageError
from pellucid.generation.ledger.entry import BeamNode
from pellucid.generation.request import Completion, Request
from pellucid.generation.samplers.chain import (
    ChainState,
    Chosen,
    add_scores,
    find_bad_logit,
    find_largest,
    process,
)
from pellucid.generation.samplers.own_probabilities import rank_places
from pellucid.generation.settings.sampling import Sampling
from pellucid.generation.slots import CacheSlots
from pellucid.generation.strategies.sample import Job, Sample, TextRow


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


class Beams(Sample):
    """The best n of the texts that a beam search finds. No token is emitted before the search ends.

    The samplers are given the log-probabilities, ln softmax(logits), and what they leave is added up without
    being normalized again, as in transformers: tokens that are banned or do not fit a constraint are
    missing, and the others count as they would without it.
    """

    def __init__(self, job: Job, slots: CacheSlots) -> None:
        super().__init__(job, slots)
        sampling = job.request.sampling
        self.search = BeamSearch(
            sampling.beams,
            job.max_new_tokens,
            n=sampling.n,
            length_penalty=sampling.length_penalty,
            early_stopping=sampling.early_stopping,
            stop_ids=job.chain.stop_ids,
            totals_only_fall=not can_raise(sampling),
        )
        self.choices: list[Beam | Hypothesis] = []
        """What each output is."""
        self.chosen: dict[int, Chosen] = {}
        """Of each node of the tree that went on or ended: its token with what was asked for."""

    @staticmethod
    def count_slots(request: Request) -> int:
        return request.sampling.beams

    def begin(self) -> None:
        request = self.job.request
        first = self.take_slot(() if request.prompt_logprobs else request.prompt)
        self.rows = [TextRow(first, request.prompt, ChainState(self.job.chain), self.outputs[0])]
        self.spare = [self.take_slot() for _ in range(request.sampling.beams - 1)]

    def draws(self) -> list[tuple[int, ChainState]]:
        return []

    def advance(self, logits: Tensor, chosen: Sequence[Chosen | PellucidError]) -> None:
        if not self.has_begun:
            self._score_prompt(logits)
        if not all(row.is_read(self.slots) for row in self.rows):
            return
        if not self.job.max_new_tokens:
            self.end("length")
            return
        self.has_begun = True
        ends = torch.tensor([feed.outputs for feed in self.fed]).cumsum(0) - 1
        last = logits[ends.to(logits.device)]
        for row, top in zip(last, find_largest(last)[1], strict=True):
            if not math.isfinite(top):
                raise find_bad_logit(row)
        own = torch.log_softmax(last.double(), -1)
        can_end = self.job.request.sampling.stop or self.job.chain.constraint is not None
        find_end = self._find_end if can_end else None
        running, ended = self.search.step(process(own, [row.state for row in self.rows]), find_end)
        wanted = self.job.wanted._replace(entry=False)
        if any(wanted):
            went_on: list[Beam | Hypothesis] = [*running, *ended]
            for one in went_on:
                logits_before, own_before = last[one.parent], own[one.parent]
                self.chosen[one.node] = add_scores(Chosen(one.ids[-1]), logits_before, own_before, wanted)
        if not self.search.is_done:
            self._continue(running)
            return
        if not self.search.finished:
            raise UsageError(
                "the samplers removed every token of every beam before a text ended: allow more tokens, or "
                "use more beams."
            )
        self._emit(self.search.best())

    def _find_end(self, parent: int, id: int) -> str | None:
        """Returns the reason if a stop text or the constraint ends the text of a beam with a token."""
        state = self.rows[parent].state.fork()
        state.append(id)
        if state.must_end:
            return "stop"
        output = self.job.make_output(0)
        for one in (*self.search.running[parent].ids, id):
            output.append(one)
        return output.finish

    def _continue(self, running: Sequence[Beam]) -> None:
        """Gives every beam a slot with the tokens of its parent: the first of a parent's children has its
        parent's, each other one a copy in a slot that is not needed any more."""
        parents = list(dict.fromkeys(beam.parent for beam in running))
        kept = {parent: self.rows[parent].slot for parent in parents}
        unused = [slot for slot in self.held if slot not in kept.values()]
        rows = []
        for beam in running:
            parent = self.rows[beam.parent]
            slot = kept.pop(beam.parent, None)
            if slot is None:
                slot = unused.pop(0)
                self.slots.copy(parent.slot, slot)
            state = parent.state.fork()
            state.append(beam.id)
            rows.append(TextRow(slot, [*parent.tokens, beam.id], state, parent.output))
        self.rows = rows

    def _emit(self, choices: Sequence[Beam | Hypothesis]) -> None:
        """Emits the tokens of these texts, the best first."""
        self.choices = list(choices)
        self.outputs = self.outputs[: len(choices)]
        for output, choice in zip(self.outputs, choices, strict=True):
            output.score = choice.score if isinstance(choice, Hypothesis) else None
            nodes, node = list[int](), choice.node
            while node >= 0:
                nodes.append(node)
                node = self.search.tree[node].parent
            has_ended = isinstance(choice, Hypothesis) and choice.finish == "stop"
            for id, node in zip(choice.ids, reversed(nodes), strict=True):
                is_last = has_ended and node == choice.node
                self.job.emit_token(output, self.chosen.get(node, Chosen(id)), is_last)

    def end(self, reason: str) -> None:
        """Ends the search; of one that is not done, the best so far are the result: hypotheses, then beams.
        Texts whose emission was interrupted stay as they are."""
        if not self.choices and self.search.tree:
            found: list[Beam | Hypothesis] = [*self.search.finished, *self.search.running]
            self._emit(found[: len(self.outputs)])
        super().end(reason)

    def completions(self) -> list[Completion]:
        tree = tuple(self.search.tree)
        nodes: Sequence[int | None] = [choice.node for choice in self.choices] or [None] * len(self.outputs)
        return [
            dataclasses.replace(completion, beams=tree, node=node)
            for completion, node in zip(super().completions(), nodes, strict=True)
        ]


def can_raise(sampling: Sampling) -> bool:
    """Returns whether a sampler can make a log-probability larger than 0."""
    return (
        max(sampling.logit_bias.values(), default=0.0) > 0
        or min(sampling.presence_penalty, sampling.frequency_penalty) < 0
        or bool(sampling.samplers)
    )

"""Beam search in the engine: a slot for each beam, whose cache is copied where a beam continues twice."""

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from pellucid.base.errors import PellucidError, UsageError
from pellucid.generation.request import Completion, Request
from pellucid.generation.samplers.chain import (
    ChainState,
    Chosen,
    add_scores,
    find_bad_logit,
    find_largest,
    process,
)
from pellucid.generation.settings.sampling import Sampling
from pellucid.generation.slots import CacheSlots
from pellucid.generation.strategies.beam_search import Beam, BeamSearch, Hypothesis
from pellucid.generation.strategies.sample import Sample
from pellucid.generation.strategies.strategy import Job, TextRow


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

"""Speculative decoding in the engine: sampling and greedy decoding with several tokens in a step."""

import dataclasses
from collections.abc import Sequence

from torch import Tensor

from pellucid.base.errors import PellucidError
from pellucid.generation.feed import Feed
from pellucid.generation.ledger.entry import SpeculativeStep
from pellucid.generation.request import Completion
from pellucid.generation.samplers.chain import ChainState, Chosen
from pellucid.generation.slots import CacheSlots
from pellucid.generation.strategies.sample import Sample
from pellucid.generation.strategies.speculative_decoding import (
    Draft,
    Proposal,
    Speculation,
    draw_while_accepted,
)
from pellucid.generation.strategies.strategy import Job, TextRow


class Speculate(Sample):
    """Texts that read proposed tokens with their last one, each as a segment of its own, so that their logits
    are those of as many steps, bit for bit."""

    def __init__(self, job: Job, slots: CacheSlots, speculation: Speculation) -> None:
        super().__init__(job, slots)
        self.speculation = speculation
        self.proposals: list[Proposal | None] = []
        """Of each row, in the step that runs."""
        self.steps: list[list[SpeculativeStep]] = [[] for _ in self.outputs]
        """Of each choice."""

    def drafts(self) -> list[Draft]:
        return [self._make_draft(row) for row in self.rows if self._goes_on(row)]

    def _goes_on(self, row: TextRow) -> bool:
        """Returns whether its next step is a decode step: all but the last of its tokens are read."""
        return self.has_begun and len(self.slots.tokens[row.slot]) == len(row.tokens) - 1

    def _make_draft(self, row: TextRow) -> Draft:
        """Returns what can be proposed for a text: a step emits one token more, and must neither go beyond
        its last token nor fill its context before that."""
        wanted, fits = self.job.max_new_tokens - len(row.output.ids) - 1, self.slots.cache.capacity
        return Draft(row.slot, row.tokens, row.state, min(wanted, fits - len(row.tokens)))

    def feeds(self, room: int) -> list[Feed]:
        plain = super().feeds(room)
        ready = [self._goes_on(row) for row in self.rows]
        self.proposals = [
            self.speculation.proposals.pop(feed.slot, None) if is_ready else None
            for feed, is_ready in zip(plain, ready, strict=True)
        ]
        self.fed = [
            feed
            if proposal is None
            else Feed(feed.slot, (*feed.segments, *((id,) for id in proposal.ids)), 1 + len(proposal.ids))
            for feed, proposal in zip(plain, self.proposals, strict=True)
        ]
        return self.fed

    def draws(self) -> list[tuple[int, ChainState]]:
        """Returns the first draw of each text; the others follow from what it gives."""
        if not self.has_begun:
            return super().draws()
        found, start = [], 0
        for row, feed in zip(self.rows, self.fed, strict=True):
            if feed.outputs:
                found.append((start, row.state))
            start += feed.outputs
        return found

    def advance(self, logits: Tensor, chosen: Sequence[Chosen | PellucidError]) -> None:
        if not self.has_begun:
            super().advance(logits, chosen)
            return
        parts, firsts = logits.split([feed.outputs for feed in self.fed]), iter(chosen)
        for row, part, proposal in zip(self.rows, parts, self.proposals, strict=True):
            if len(part):
                self._append(row, next(firsts), part, proposal)
        self._drop_finished()

    def _append(
        self, row: TextRow, first: Chosen | PellucidError, logits: Tensor, proposal: Proposal | None
    ) -> None:
        """Adds the tokens of a text up to the first that was not proposed, and removes the rest from its
        slot."""
        step = len(row.state.new)
        proposed = [] if proposal is None else proposal.ids
        drawn = draw_while_accepted(first, logits, row.state, proposed, self.job.wanted)
        for token in drawn:
            if isinstance(token, PellucidError):
                raise token
            row.append(self.job, self.slots, token)
            if row.output.finish is not None:
                break
        if proposal is None:
            return
        new = row.state.new[step:]
        accepted = sum(1 for one, other in zip(new, proposed, strict=False) if one == other)
        self.steps[row.output.choice].append(
            SpeculativeStep(step, proposal.proposer, tuple(proposed), accepted)
        )
        if self.slots.tokens[row.slot]:  # none, where the context was full and is read again
            self.slots.rewind(row.slot, len(row.tokens) - 1)

    def completions(self) -> list[Completion]:
        return [
            dataclasses.replace(completion, speculative=tuple(steps))
            for completion, steps in zip(super().completions(), self.steps, strict=True)
        ]

"""Speculative decoding that never changes a text: proposed tokens are read in one call, and the target model
draws its own token at each place.

    proposed = propose_by_lookup(ids, 4)               # or propose_by_draft(slots, [...])[0]
    logits = ...                                       # of the last token and of each proposed one [1 + k V]
    for chosen in draw_while_accepted(first, logits, state, proposed):
        state.append(chosen.id)

The draw at each place is the one that would be made without proposals: the same logits, the same samplers,
the same u. A proposal is accepted if it is the token that was drawn; the first other token is emitted too,
and ends the step. So proposals decide how many tokens a call yields, and nothing else.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pellucid.base.arguments import check_int
from pellucid.base.errors import PellucidError, UsageError
from pellucid.engine.cache import Cache
from pellucid.generation.decoders import Decoder
from pellucid.generation.ledger.entry import SpeculativeStep
from pellucid.generation.request import Completion
from pellucid.generation.samplers.chain import NOTHING, ChainState, Chosen, Wanted, choose
from pellucid.generation.slots import CacheSlots, Feed, count_equal
from pellucid.generation.strategies.sample import Job, Sample, TextRow

LONGEST_LOOKUP = 3
"""Tokens at the end of a text that prompt look-up searches for; fewer where those are new."""


def propose_by_lookup(ids: Sequence[int], tokens: int, longest: int = LONGEST_LOOKUP) -> list[int]:
    """Returns the tokens that followed the latest earlier occurrence of the text's last `longest` tokens, or
    of fewer where those do not occur before; [] if even the last token is new.

    A match near the end goes on into what it proposes, as a repetition does.

    >>> propose_by_lookup([7, 1, 2, 8, 9, 1, 2], 3)
    [8, 9, 1]
    >>> propose_by_lookup([5, 6, 5, 6], 5)
    [5, 6, 5, 6, 5]
    >>> propose_by_lookup([1, 2, 3], 2)
    []
    """
    text = list(ids)
    end = len(text)
    for length in range(min(longest, end - 1), 0, -1):
        wanted = text[end - length :]
        for start in range(end - length - 1, -1, -1):
            if text[start] == wanted[0] and text[start : start + length] == wanted:
                for place in range(start + length, start + length + tokens):
                    text.append(text[place])
                return text[end:]
    return []


class Draft(NamedTuple):
    """One text that wants proposals: its slot, its tokens, the state of its samplers, and how many tokens
    may be proposed."""

    slot: int
    text: Sequence[int]
    state: ChainState
    tokens: int


@torch.inference_mode()
def propose_by_draft(slots: CacheSlots, drafts: Sequence[Draft]) -> list[list[int]]:
    """Returns the tokens that the draft model of these slots proposes for each text.

    It draws with the samplers and the random numbers of the text itself, so that where both models have
    nearly the same distribution they draw the same token. A text whose draw fails has fewer proposals.
    """
    proposed: list[list[int]] = [[] for _ in drafts]
    states = [one.state.fork() for one in drafts]
    feeds = [_catch_up(slots, one) for one in drafts]
    rows = [row for row, one in enumerate(drafts) if one.tokens > 0]
    while rows:
        try:
            logits = slots.forward([feeds[row] for row in rows])
        except BaseException:
            for row in rows:
                slots.reset(drafts[row].slot)
            raise
        for row, chosen in zip(list(rows), choose(logits, [states[row] for row in rows]), strict=True):
            if isinstance(chosen, PellucidError):
                rows.remove(row)
                continue
            proposed[row].append(chosen.id)
            states[row].append(chosen.id)
            feeds[row] = Feed(drafts[row].slot, ((chosen.id,),), 1)
            if len(proposed[row]) == drafts[row].tokens:
                rows.remove(row)
    return proposed


def _catch_up(slots: CacheSlots, draft: Draft) -> Feed:
    """Removes from the slot what is not the beginning of the text, and returns the rest as a feed: tokens
    that were rejected, or another text."""
    held, text = slots.tokens[draft.slot], list(draft.text)
    shared = len(held) if text[: len(held)] == held else count_equal(held, text)
    slots.rewind(draft.slot, min(shared, len(text) - 1))
    segments, at = [], len(slots.tokens[draft.slot])
    while at < len(text):
        end = min(slots.next_border(at), len(text))
        segments.append(tuple(text[at:end]))
        at = end
    return Feed(draft.slot, tuple(segments), 1)


def draw_while_accepted(
    first: Chosen | PellucidError,
    logits: Tensor,
    state: ChainState,
    proposed: Sequence[int],
    wanted: Wanted = NOTHING,
) -> Iterator[Chosen | PellucidError]:
    """Yields the target's own tokens up to the first that is not the proposed one: `first`, drawn from the
    first row of the logits [1 + k V] of the last token and of k proposed ones, then those of the next rows.

    The caller appends each token to the state before it takes the next, and takes no more where the text
    ends.
    """
    chosen = first
    yield chosen
    for row, id in enumerate(proposed, start=1):
        if isinstance(chosen, PellucidError) or chosen.id != id:
            return
        [chosen] = choose(logits[row : row + 1], [state], [wanted])
        yield chosen


class Proposal(NamedTuple):
    """Proposed tokens, and what proposed them: one of `PROPOSERS`."""

    proposer: str
    ids: list[int]


class Speculation:
    """What proposes tokens to the requests of an engine: look-up in a request's own text, and where that
    finds nothing, or without it, a draft model."""

    def __init__(
        self,
        target: CacheSlots,
        *,
        draft: Decoder | None = None,
        lookup: bool = False,
        tokens: int = 4,
        memory: int | None = None,
    ) -> None:
        check_speculation(target.cache, draft, target.model.config.vocab_size)
        self.tokens, self.lookup = check_int("draft_tokens", tokens, least=1, most=64), lookup
        left = None if memory is None else memory - target.cache.bytes
        capacity = target.cache.capacity
        self.slots = (
            None
            if draft is None
            else CacheSlots(draft, target.count, capacity, draft.dtype, left, target.chunk)
        )
        self.proposals: dict[int, Proposal] = {}
        """What is proposed for the next step, by slot."""

    def prepare(self, drafts: Sequence[Draft]) -> None:
        """Proposes tokens for texts that go on."""
        found: dict[int, Proposal] = {}
        wanted = [one._replace(tokens=min(one.tokens, self.tokens)) for one in drafts if one.tokens > 0]
        for one in wanted if self.lookup else []:
            if ids := propose_by_lookup(one.text, one.tokens):
                found[one.slot] = Proposal("lookup", ids)
        rest = [one for one in wanted if one.slot not in found]
        if self.slots is not None and rest:
            for one, ids in zip(rest, propose_by_draft(self.slots, rest), strict=True):
                found[one.slot] = Proposal("draft", ids)
        self.proposals |= found


def check_speculation(target: Cache, draft: Decoder | None, vocab_size: int) -> None:
    """Raises unless rejected proposals can be removed from the target's cache, and the draft model reads the
    same tokens."""
    if not target.can_rewind:
        raise UsageError(
            "speculative decoding removes rejected tokens from the cache, and this model's cache (a ring "
            "buffer or the state of linear attention) cannot be rewound: omit draft and lookup."
        )
    if draft is None:
        return
    config = draft.config
    if config.vocab_size != vocab_size:
        raise UsageError(
            f"the draft model has {config.vocab_size:,} tokens and the target {vocab_size:,}: a draft model "
            "must have the target's tokenizer."
        )
    if config.context_length < target.capacity:
        raise UsageError(
            f"the draft model's context of {config.context_length:,} tokens is shorter than the "
            f"{target.capacity:,} of a slot: use capacity={config.context_length}, or another draft model."
        )
    if config.mask.bidirectional_prefix or not Cache(config, 1, target.capacity, device="meta").can_rewind:
        raise UsageError(
            "the draft model's cache (a ring buffer, the state of linear attention, or a bidirectional "
            "prefix) cannot be rewound when proposals are rejected: use a causal draft model, or lookup."
        )


# ---- in the engine


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

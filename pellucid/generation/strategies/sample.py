"""Decoding strategies: how one request goes from logits to texts; sampling and greedy decoding, one token for
each text in each step.

In each step the engine asks every strategy what it reads (`feeds`), runs the model on all of it at once,
draws the tokens of all texts that want one (`draws`) together, and hands both to `advance`. Beam search and
speculative decoding differ from `Sample` in some of these.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from torch import Tensor

from pellucid.base.errors import PellucidError
from pellucid.generation.context import shorten
from pellucid.generation.output import Output
from pellucid.generation.request import Completion, Request, Token
from pellucid.generation.samplers.chain import Chain, ChainState, Chosen, Wanted, find_bad_logit
from pellucid.generation.samplers.own_probabilities import TopLogprobs, compute_logprobs, find_top
from pellucid.generation.slots import CacheSlots, Feed
from pellucid.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from pellucid.generation.strategies.speculative import Draft

SCORED_SEGMENT = 512
"""Tokens of a prompt that are read in one call where its scores are all that is wanted: those of a shorter
prompt are then the bits of a full forward pass. Read in chunks, those of a model of 135 million parameters
differed by up to 2e-5 in float32. A prompt that a text follows is read in chunks, so that the text does not
depend on what is asked for beside it."""


@dataclass
class Job:
    """A request with what the engine has worked out for it."""

    request: Request
    chain: Chain
    max_new_tokens: int
    context_length: int
    bidirectional_prefix: int
    tokenizer: Tokenizer | None
    emit: Callable[[Token], None]

    @cached_property
    def wanted(self) -> Wanted:
        """The values that come with each new token."""
        request = self.request
        top = request.top_logprobs if request.logprobs else 0
        return Wanted(request.ledger, request.logprobs, top, request.uncertainty)

    def make_output(self, choice: int) -> Output:
        """Returns the empty output of a choice; under a constraint it is a text by itself."""
        stop = self.request.sampling.stop
        ids = self.chain.stop_ids
        prompt = self.request.prompt if self.chain.constraint is None else ()
        return Output(choice, self.tokenizer, prompt, ids, stop, self.max_new_tokens)

    def emit_token(self, output: Output, chosen: Chosen, is_last: bool = False) -> None:
        """Adds a chosen token to an output and emits it; the text may end with it."""
        offset = output.n_decoded
        text = output.append(chosen.id, chosen.logprob, chosen.entry, is_last, chosen.top)
        self.emit(
            Token(
                output.choice,
                chosen.id,
                text,
                chosen.logprob,
                chosen.entry,
                offset,
                output.finish,
                output.is_cut,
                chosen.top,
                chosen.uncertainty,
            )
        )


class TextRow:
    """One text in a slot: the tokens of its context, how many of them the slot holds, and its output."""

    def __init__(self, slot: int, tokens: Sequence[int], state: ChainState, output: Output) -> None:
        self.slot, self.tokens, self.state, self.output = slot, list(tokens), state, output
        self.note = ""

    def make_feed(
        self, slots: CacheSlots, room: int, all_outputs: bool = False, least_segment: int = 1
    ) -> Feed:
        """Returns the next tokens to read: in decoding one; of a prompt whole chunks, at least one and at
        least `least_segment` tokens, as many as `room` tokens allow."""
        start = at = len(slots.tokens[self.slot])
        if at == len(self.tokens) - 1:  # a text
            return Feed(self.slot, ((self.tokens[at],),), 1)
        segments = list[tuple[int, ...]]()
        while at < len(self.tokens):
            end = min(max(slots.next_border(at), at + least_segment), len(self.tokens))
            if segments and end - start > room:
                break
            segments.append(tuple(self.tokens[at:end]))
            at = end
        outputs = at - start if all_outputs else int(at == len(self.tokens))
        return Feed(self.slot, tuple(segments), outputs)

    def is_read(self, slots: CacheSlots) -> bool:
        """Returns whether the slot holds every token, so that its last logits are the next token's."""
        return len(slots.tokens[self.slot]) == len(self.tokens)

    def append(self, job: Job, slots: CacheSlots, chosen: Chosen) -> None:
        """Adds the next token; a text that is then longer than the context is shortened by its rule."""
        if self.note and chosen.entry is not None:
            chosen = chosen._replace(entry=dataclasses.replace(chosen.entry, note=self.note))
        self.note = ""
        self.state.append(chosen.id)
        job.emit_token(self.output, chosen, self.state.must_end)
        self.tokens.append(chosen.id)
        if self.output.finish is None:
            self.shorten(job, slots)

    def shorten(self, job: Job, slots: CacheSlots) -> None:
        """Applies the rule for a full context, where the tokens are more than it holds."""
        if len(self.tokens) <= job.context_length:
            return
        sampling = job.request.sampling
        kept = shorten(
            self.tokens, sampling.context, sampling.keep, job.context_length, job.bidirectional_prefix
        )
        if len(kept) < len(self.tokens):
            dropped = len(self.tokens) - len(kept)
            self.note = f"context full: {dropped} tokens dropped, {len(kept)} read again"
            self.tokens = kept
            slots.reset(self.slot)


class Sample:
    """One request in the engine, from its first slot to its last token.

    The prompt is read once, in the slot of the first choice; the others begin as copies of it.
    """

    def __init__(self, job: Job, slots: CacheSlots) -> None:
        self.job, self.slots = job, slots
        self.outputs = [job.make_output(choice) for choice in range(job.request.sampling.n)]
        self.held: list[int] = []
        """The slots that it holds now."""
        self.prompt_logprobs: list[float] = []
        self.prompt_tops: list[TopLogprobs] = []
        self.rows: list[TextRow] = []
        self.spare: list[int] = []
        """The slots of choices that have not begun."""
        self.has_begun = False
        """Whether the prompt is read, so that every choice has a row."""
        self.fed: list[Feed] = []

    @staticmethod
    def count_slots(request: Request) -> int:
        """Returns the number of slots that a request takes."""
        return request.sampling.n

    def begin(self) -> None:
        """Takes the slots; as many as `count_slots` says are free."""
        request = self.job.request
        first = self.take_slot(() if request.prompt_logprobs else request.prompt)
        self.rows = [TextRow(first, request.prompt, ChainState(self.job.chain), self.outputs[0])]
        self.rows[0].shorten(self.job, self.slots)
        self.spare = [self.take_slot() for _ in self.outputs[1:]]

    def take_slot(self, prompt: Sequence[int] = ()) -> int:
        """Returns a slot of its own, with what the engine already has of the prompt."""
        self.held.append(self.slots.acquire(prompt))
        return self.held[-1]

    def give_back(self, slot: int) -> None:
        """Returns a slot to the engine."""
        self.held.remove(slot)
        self.slots.release(slot)

    def give_back_all(self) -> None:
        """Returns every slot to the engine."""
        for slot in list(self.held):
            self.give_back(slot)

    def drafts(self) -> "list[Draft]":
        """Returns the texts for which tokens may be proposed before the next step."""
        return []

    def feeds(self, room: int) -> list[Feed]:
        """Returns what it reads in the next step; of a prompt not much more than `room` tokens."""
        scores_prompt = self.job.request.prompt_logprobs and not self.has_begun
        is_for_scores = scores_prompt and self.job.max_new_tokens <= 1
        least = SCORED_SEGMENT if is_for_scores else 1
        self.fed = [row.make_feed(self.slots, room, scores_prompt, least) for row in self.rows]
        return self.fed

    @property
    def reads_prompt(self) -> bool:
        """Returns whether it still reads its prompt, or a shortened context again."""
        return any(len(row.tokens) - len(self.slots.tokens[row.slot]) > 1 for row in self.rows)

    def draws(self) -> list[tuple[int, ChainState]]:
        """Returns the draws that the engine is to make: the row of this strategy's logits, and the state of
        the text. It is called after the forward pass, when the slots hold what was read."""
        last = -1
        found = []
        for row, feed in zip(self.rows, self.fed, strict=True):
            last += feed.outputs
            if row.is_read(self.slots):
                found += [(last, row.state)]
        if not self.job.max_new_tokens:
            return []
        if found and not self.has_begun:
            found = [(last, self.rows[0].state.fork(choice)) for choice in range(len(self.outputs))]
        return found

    def advance(self, logits: Tensor, chosen: Sequence[Chosen | PellucidError]) -> None:
        """Takes the step's logits [Σ outputs V] and the tokens of its draws; emits tokens, ends texts and
        gives slots back."""
        if not self.has_begun:
            self._score_prompt(logits)
        if not self.job.max_new_tokens and self.rows[0].is_read(self.slots):
            self.end("length")
        if not chosen:
            return
        if not self.has_begun:
            self._fork()
        ready = [row for row in self.rows if row.is_read(self.slots)]
        for row, token in zip(ready, chosen, strict=True):
            if isinstance(token, PellucidError):
                raise token
            row.append(self.job, self.slots, token)
        self._drop_finished()

    def _drop_finished(self) -> None:
        """Gives back the slots of the texts that have ended."""
        for row in self.rows:
            if row.output.finish is not None:
                self.give_back(row.slot)
        self.rows = [row for row in self.rows if row.output.finish is None]

    def _fork(self) -> None:
        """Gives every other choice a copy of the first one's slot."""
        first = self.rows[0]
        for output, slot in zip(self.outputs[1:], self.spare, strict=True):
            self.slots.copy(first.slot, slot)
            self.rows.append(TextRow(slot, first.tokens, first.state.fork(output.choice), output))
        self.spare, self.has_begun = [], True

    def _score_prompt(self, logits: Tensor) -> None:
        """Keeps the log-probabilities of the tokens of the prompt that follow those that were read; a row at
        a time, since a table of all in float64 would be large."""
        request = self.job.request
        if not request.prompt_logprobs:
            return
        done = len(self.prompt_logprobs)
        for id, row in zip(self.rows[0].tokens[done + 1 :], logits, strict=False):
            own = compute_logprobs(row)
            if math.isnan(logprob := float(own[id])):
                raise find_bad_logit(row)
            self.prompt_logprobs.append(logprob)
            if request.top_logprobs:
                self.prompt_tops.append(find_top(own, request.top_logprobs))

    def restart(self) -> None:
        """Prepares to read every token again, after a step that failed; its slots are empty, and the
        tokens of the rows say what to read."""
        if not self.has_begun:
            self.prompt_logprobs, self.prompt_tops = [], []

    @property
    def is_done(self) -> bool:
        return bool(self.outputs) and all(output.finish is not None for output in self.outputs)

    def completions(self) -> list[Completion]:
        """Returns the choices, in order."""
        seed = self.job.chain.seed
        return [dataclasses.replace(output.to_completion(), seed=seed) for output in self.outputs]

    def end(self, reason: str) -> None:
        """Ends every text that goes on, and gives all slots back."""
        for output in self.outputs:
            output.end(reason)
        self.give_back_all()

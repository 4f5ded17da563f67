"""Sampling and greedy decoding: one token for each text in each step."""

import math
from collections.abc import Sequence

from torch import Tensor

from pellucid.base.errors import PellucidError
from pellucid.generation.request import Request
from pellucid.generation.samplers.chain import ChainState, Chosen, find_bad_logit
from pellucid.generation.samplers.own_probabilities import compute_logprobs, find_top
from pellucid.generation.slots import CacheSlots, Feed
from pellucid.generation.strategies.strategy import Job, Strategy, TextRow

SCORED_SEGMENT = 512
"""Tokens of a prompt that are read in one call where its scores are all that is wanted: those of a shorter
prompt are then the bits of a full forward pass. Read in chunks, those of a model of 135 million parameters
differed by up to 2e-5 in float32. A prompt that a text follows is read in chunks, so that the text does not
depend on what is asked for beside it."""


class Sample(Strategy):
    """The prompt is read once, in the slot of the first choice; the others begin as copies of it."""

    def __init__(self, job: Job, slots: CacheSlots) -> None:
        super().__init__(job, slots)
        self.outputs = [job.make_output(choice) for choice in range(job.request.sampling.n)]
        self.rows: list[TextRow] = []
        self.spare: list[int] = []
        """The slots of choices that have not begun."""
        self.has_begun = False
        """Whether the prompt is read, so that every choice has a row."""
        self.fed: list[Feed] = []

    @staticmethod
    def count_slots(request: Request) -> int:
        return request.sampling.n

    def begin(self) -> None:
        request = self.job.request
        first = self.take_slot(() if request.prompt_logprobs else request.prompt)
        self.rows = [TextRow(first, request.prompt, ChainState(self.job.chain), self.outputs[0])]
        self.rows[0].shorten(self.job, self.slots)
        self.spare = [self.take_slot() for _ in self.outputs[1:]]

    def feeds(self, room: int) -> list[Feed]:
        scores_prompt = self.job.request.prompt_logprobs and not self.has_begun
        is_for_scores = scores_prompt and self.job.max_new_tokens <= 1
        least = SCORED_SEGMENT if is_for_scores else 1
        self.fed = [row.make_feed(self.slots, room, scores_prompt, least) for row in self.rows]
        return self.fed

    @property
    def reads_prompt(self) -> bool:
        return any(len(row.tokens) - len(self.slots.tokens[row.slot]) > 1 for row in self.rows)

    def draws(self) -> list[tuple[int, ChainState]]:
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
        """Nothing is kept of what was read: the rows' tokens say what to read."""
        if not self.has_begun:
            self.prompt_logprobs, self.prompt_tops = [], []

"""The text of one choice while it is generated: decoded token by token, and cut before a stop text."""

from collections.abc import Collection, Sequence

from pellucid.generation.ledger.entry import Entry
from pellucid.generation.request import Completion
from pellucid.generation.samplers.own_probabilities import TopLogprobs
from pellucid.text.tokenizer import Tokenizer


class Output:
    """The new tokens of one choice, and their text.

    Text that may be the beginning of a stop text is held back until the next token decides. `finish` is None
    while the text goes on.
    """

    def __init__(
        self,
        choice: int,
        tokenizer: Tokenizer | None,
        prompt: Sequence[int],
        stop_ids: Collection[int],
        stop: Sequence[str],
        max_new_tokens: int,
    ) -> None:
        self.choice, self.tokenizer, self.prompt = choice, tokenizer, prompt
        self.stop_ids, self.stop, self.max_new_tokens = stop_ids, stop, max_new_tokens
        self.decoder = None if tokenizer is None else tokenizer.decode_stream()
        for id in prompt[-DECODED_PROMPT:]:  # a first word may need the blank that the prompt ends with
            self._decode(id)
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.tops: list[TopLogprobs] = []
        self.entries: list[Entry] = []
        self.text, self.held = "", ""
        self.finish: str | None = None
        self.score: float | None = None
        self.is_cut = False
        """Whether the text was cut before a stop text."""

    @property
    def n_decoded(self) -> int:
        """Characters that were decoded so far, those that are held back included."""
        return len(self.text) + len(self.held)

    def append(
        self,
        id: int,
        logprob: float | None = None,
        entry: Entry | None = None,
        is_last: bool = False,
        top: TopLogprobs = (),
    ) -> str:
        """Adds a token and returns the text that it completes; sets `finish` where the text ends with it.

        `is_last` says that a constraint allows nothing after it."""
        self.ids.append(id)
        if logprob is not None:
            self.logprobs.append(logprob)
        if top:
            self.tops.append(top)
        if entry is not None:
            self.entries.append(entry)
        self.held += self._decode(id)
        if self.stop:
            self._cut()
        if self.finish is None and (is_last or id in self.stop_ids):
            self.finish = "stop"
        if self.finish is None and len(self.ids) >= self.max_new_tokens:
            self.finish = "length"
        return self._release()

    def _cut(self) -> None:
        """Ends the text before the first stop text, where there is one."""
        for place in sorted(self.held.find(text) for text in self.stop if text in self.held)[:1]:
            self.held, self.finish, self.decoder = self.held[:place], "stop", None
            self.is_cut = True

    def end(self, reason: str) -> str:
        """Ends the text for a reason that is not its tokens', and returns what was held back."""
        self.finish = self.finish or reason
        return self._release()

    def to_completion(self) -> Completion:
        return Completion(
            self.choice,
            tuple(self.ids),
            self.text,
            self.finish or "cancelled",
            tuple(self.logprobs),
            tuple(self.entries),
            self.score,
            top_logprobs=tuple(self.tops),
        )

    def _decode(self, id: int) -> str:
        """Returns the text of a token; a model may have more rows than its tokenizer has tokens."""
        if self.decoder is None or self.tokenizer is None:
            return ""
        readable = id < self.tokenizer.vocab_size and id not in self.stop_ids
        return self.decoder.feed(id) if readable else ""

    def _release(self) -> str:
        """Returns what can be shown: all but the longest end that a stop text begins with."""
        if self.finish is not None:
            piece, self.held = self.held + ("" if self.decoder is None else self.decoder.end()), ""
            self.decoder = None
        elif not self.stop:
            piece, self.held = self.held, ""
        else:
            most = max(len(text) for text in self.stop) - 1
            kept = next(
                (n for n in range(min(most, len(self.held)), 0, -1) if self._is_begun(self.held[-n:])), 0
            )
            cut = len(self.held) - kept
            piece, self.held = self.held[:cut], self.held[cut:]
        self.text += piece
        return piece

    def _is_begun(self, end: str) -> bool:
        return any(text.startswith(end) for text in self.stop)


DECODED_PROMPT = 64
"""Tokens of the prompt that a decoder is given before the first new one: more than any character has."""

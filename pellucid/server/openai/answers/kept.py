"""Answers that can be opened later: the tokens of each under a trace id. Nothing is computed to keep one."""

import secrets
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from pellucid.server.http.limits import RequestError

MOST_ANSWERS = 1000
MOST_TOKENS = 8_000_000
"""Tokens of all answers together, of 4 bytes each."""
PREFIX = "tr_"


@dataclass(frozen=True)
class KeptAnswer:
    """The token ids of an answer. How the new ones were chosen is the matter of a ledger."""

    prompt: "array[int]"
    new: "array[int]"

    def __len__(self) -> int:
        return len(self.prompt) + len(self.new)


class KeptAnswers:
    """The answers that were used last, by their trace ids, which cannot be guessed.

    >>> answers = KeptAnswers()
    >>> answers.get(answers.keep([4, 5], [6])).new.tolist()
    [6]
    """

    def __init__(self, most: int = MOST_ANSWERS, most_tokens: int = MOST_TOKENS) -> None:
        self._most, self._most_tokens = most, most_tokens
        self._kept: dict[str, KeptAnswer] = {}  # the least recently used first
        self._tokens = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, prompt: Iterable[int], new: Iterable[int]) -> str:
        """Returns the trace id of an answer; the least recently used ones go until the limits hold."""
        id, answer = PREFIX + secrets.token_urlsafe(12), KeptAnswer(array("I", prompt), array("I", new))
        self._kept[id] = answer
        self._tokens += len(answer)
        while len(self._kept) > self._most or (self._tokens > self._most_tokens and len(self._kept) > 1):
            self._tokens -= len(self._kept.pop(next(iter(self._kept))))
        return id

    def get(self, id: str) -> KeptAnswer:
        """Returns the answer of a trace id, which is then the one used last; raises where it is not kept."""
        answer = self._kept.pop(id, None)
        if answer is None:
            raise RequestError(
                f"this answer is no longer kept: the server keeps the {self._most:,} that were used last, "
                'until it ends. Ask for it again with "explain": true.',
                404,
                param="answer",
            )
        self._kept[id] = answer
        return answer

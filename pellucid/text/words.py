"""Whole words, separated by white space: the tokenizer of the teaching model."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from pellucid.text.listed import Listed
from pellucid.text.tokenizer import Stream


@dataclass(frozen=True)
class Words(Listed):
    """
    >>> Words(("A", "B", "C", "D")).encode("B A")
    [1, 0]
    """

    what: ClassVar[str] = "word"
    pattern: ClassVar[re.Pattern[str]] = re.compile(r"[\S\x1c-\x1f]+")  # Unicode's white space, not Python's
    pre_tokenizer: ClassVar[dict[str, Any]] = {"type": "WhitespaceSplit"}
    decoder: ClassVar[dict[str, Any] | None] = None

    @property
    def kind(self) -> str:
        return "words"

    def decode(self, ids: Iterable[int]) -> str:
        return " ".join(self.token(id) for id in ids)

    def stream(self) -> Stream:
        return _Spaced(self)


class _Spaced(Stream):
    """A word is certain when it comes; a space goes before every word but the first."""

    def __init__(self, words: Words) -> None:
        self.words, self.between = words, ""

    def feed(self, id: int) -> str:
        piece, self.between = self.between + self.words.token(id), " "
        return piece

    def end(self) -> str:
        return ""

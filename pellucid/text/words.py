"""Whole words, separated by white space: the tokenizer of the teaching model."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from pellucid.text.tokenizer import DecodeStream
from pellucid.text.word_level import WordLevelTokenizer


@dataclass(frozen=True)
class WordTokenizer(WordLevelTokenizer):
    """
    >>> WordTokenizer(("A", "B", "C", "D")).encode("B A")
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

    def decode_stream(self) -> DecodeStream:
        return _WordDecodeStream(self)


class _WordDecodeStream(DecodeStream):
    """Each word is complete by itself; a space precedes every word but the first."""

    def __init__(self, words: WordTokenizer) -> None:
        self.words, self.between = words, ""

    def feed(self, id: int) -> str:
        piece, self.between = self.between + self.words.token(id), " "
        return piece

    def end(self) -> str:
        return ""

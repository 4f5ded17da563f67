"""Tokenizers whose vocabulary is a plain list: whole words, or single characters.

They need no library, so the teaching model starts at once; what they save is a standard `tokenizer.json`.
"""

import json
import re
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from pellucid.base.errors import TokenError, did_you_mean, show
from pellucid.text.tokenizer import (
    ByteDecodeStream,
    DecodeStream,
    Special,
    Tokenizer,
    check_encodable,
    check_id,
    check_id_list,
    folder_files,
    make_file,
)


@dataclass(frozen=True)
class WordLevelTokenizer(Tokenizer):
    """Ids are places in the list; without an `unknown` token, what is not listed is an error."""

    words: tuple[str, ...]
    special: Special = field(default_factory=Special)
    unknown: str | None = None
    what: ClassVar[str]
    pattern: ClassVar[re.Pattern[str]]
    pre_tokenizer: ClassVar[dict[str, Any]]
    decoder: ClassVar[dict[str, Any] | None]

    @property
    def vocab_size(self) -> int:
        return len(self.words)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: id for id, word in enumerate(self.words)}

    @property
    def unknown_id(self) -> int | None:
        return None if self.unknown is None else self._ids[self.unknown]

    def with_unknown(self) -> "WordLevelTokenizer":
        """Returns a tokenizer with the same ids that encodes any text: one without an unknown token gets it
        as its last."""
        if self.unknown is not None:
            return self
        name = "<unk>"
        while name in self._ids:
            name = f"<{name}>"
        return replace(self, words=(*self.words, name), unknown=name)

    @cached_property
    def _hidden(self) -> set[str]:
        """The tokens that a user's text cannot name."""
        return {*self.special.names(), *([self.unknown] if self.unknown else [])}

    @cached_property
    def _specials(self) -> re.Pattern[str]:
        return re.compile(
            "|".join(map(re.escape, sorted(self.special.names(), key=len, reverse=True))) or r"(?!)"
        )

    def encode(self, text: str, parse_special: bool = False) -> list[int]:
        if not parse_special:
            return self._plain(text)
        ids, start = [], 0
        for found in self._specials.finditer(check_encodable(text)):
            ids += [*self._plain(text[start : found.start()]), self._ids[found[0]]]
            start = found.end()
        return ids + self._plain(text[start:])

    def _plain(self, text: str) -> list[int]:
        ids, hidden = self._ids, self._hidden
        return [
            ids[word] if word in ids and word not in hidden else self._id_of_unknown(word)
            for word in self.pattern.findall(check_encodable(text))
        ]

    def _id_of_unknown(self, word: str) -> int:
        if self.unknown is not None:
            return self._ids[self.unknown]
        known = [entry for entry in self.words if entry not in self._hidden]
        some = ", ".join(known[:20]) + (", …" if len(known) > 20 else "")
        raise TokenError(
            f"the {self.what} {show(word)} is not in this model's vocabulary; it knows {some}."
            + did_you_mean(word[:80], known)
        )

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str: ...

    def token(self, id: int) -> str:
        return self.words[check_id(id, self.vocab_size)]

    def bytes_of(self, id: int) -> bytes:
        return self.token(id).encode()

    def decode_stream(self) -> DecodeStream:
        return ByteDecodeStream(self)

    def offsets(self, text: str) -> list[tuple[int, int]]:
        found, at, bytes_before = [], 0, 0
        for match in self.pattern.finditer(check_encodable(text)):
            bytes_before += len(text[at : match.start()].encode())
            end = bytes_before + len(match[0].encode())
            found.append((bytes_before, end))
            at, bytes_before = match.end(), end
        return found

    def files(self) -> dict[str, bytes]:
        model = {"type": "WordLevel", "vocab": self._ids, "unk_token": self.unknown or "<unk>"}
        file = make_file(model, self._ids, self.special.names(), self.pre_tokenizer, self.decoder)
        return folder_files(json.dumps(file, ensure_ascii=False), self.special, self.kind, self.unknown)


@dataclass(frozen=True)
class CharacterTokenizer(WordLevelTokenizer):
    """Single characters.

    >>> CharacterTokenizer(tuple("abn")).encode("banana")
    [1, 0, 2, 0, 2, 0]
    """

    what: ClassVar[str] = "character"
    pattern: ClassVar[re.Pattern[str]] = re.compile(r".", re.DOTALL)
    pre_tokenizer: ClassVar[dict[str, Any]] = {
        "type": "Split",
        "pattern": {"Regex": r"[\s\S]"},
        "behavior": "Isolated",
        "invert": False,
    }
    decoder: ClassVar[dict[str, Any] | None] = {"type": "Fuse"}

    @property
    def kind(self) -> str:
        return "characters"

    @property
    def longest_token(self) -> int:
        return 4  # bytes of a character, known or unknown

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(self.words[id] for id in check_id_list(ids, self.vocab_size))


@dataclass(frozen=True)
class WordTokenizer(WordLevelTokenizer):
    """Whole words, separated by white space: the tokenizer of the teaching model.

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
        return " ".join(self.words[id] for id in check_id_list(ids, self.vocab_size))

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

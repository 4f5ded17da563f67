"""The interface of every tokenizer."""

import codecs
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.base.arguments import check_bool, check_int, check_iterator, check_path, check_text
from pellucid.base.errors import TokenError, UsageError
from pellucid.base.formatting import escape_controls
from pellucid.text.folder import write_folder

Ids = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Special:
    """The tokens that begin, end and pad a text. They are parsed in a text only on request."""

    bos: str | None = None
    eos: str | None = None
    pad: str | None = None

    def names(self) -> list[str]:
        """Returns each name once, in a fixed order."""
        return list(dict.fromkeys(name for name in (self.eos, self.bos, self.pad) if name is not None))


class DecodeStream(ABC):
    """Decoding one token at a time: no piece ends inside a character."""

    @abstractmethod
    def feed(self, id: int) -> str:
        """Returns the text that is complete with this token."""

    @abstractmethod
    def end(self) -> str:
        """Returns the rest; all pieces joined are the decoded text."""


class Tokenizer(ABC):
    """Text to ids and back. `kind` is the kind that it was trained as."""

    special: Special

    @property
    @abstractmethod
    def kind(self) -> str: ...

    @property
    @abstractmethod
    def vocab_size(self) -> int: ...

    @property
    def unknown_id(self) -> int | None:
        """The id of the token for what is not in the vocabulary; None where there is none."""
        return None

    @property
    def special_tokens(self) -> dict[str, int]:
        """The ids of the tokens that a text cannot name unless they are parsed, by their names."""
        found = {name: self.id_of(name) for name in self.special.names()}
        return {name: id for name, id in found.items() if id is not None}

    @property
    def longest_token(self) -> int | None:
        """The most bytes of a text that one token can stand for; None where that has no bound, because some
        of a text is dropped, or is unknown at any length."""
        return None

    @property
    def byte_tokens(self) -> frozenset[int]:
        """The ids of tokens that are a byte of a character which has no token of its own (byte fallback)."""
        return frozenset()

    @abstractmethod
    def encode(self, text: str, parse_special: bool = False) -> list[int]:
        """Returns the ids of a text. Special tokens in it are ordinary text, unless they are to be parsed."""

    def encode_array(self, text: str) -> Ids:
        """Returns the ids of a text as an array; faster than `encode` where a library can write into one."""
        ids = self.encode(text)
        return np.fromiter(ids, np.int64, len(ids))

    def encode_spans(self, text: str) -> tuple[Ids, Ids]:
        """Returns the ids [n] of a text, and the byte offsets [n 2] that `offsets` lists."""
        return self.encode_array(text), np.array(self.offsets(text), np.int64).reshape(-1, 2)

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of ids."""

    @abstractmethod
    def decode_stream(self) -> DecodeStream:
        """Returns a new decoder that takes one id at a time."""

    @abstractmethod
    def token(self, id: int) -> str:
        """Returns a token as the tokenizer's file writes it."""

    def visible(self, id: int) -> str:
        """Returns a token for display: a space is ·, a line feed \\n."""
        return show_blanks(self.token(id))

    @abstractmethod
    def bytes_of(self, id: int) -> bytes:
        """Returns the bytes that a token stands for in the text."""

    @abstractmethod
    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Returns the byte offsets (start, end) of each token of the text."""

    @abstractmethod
    def files(self) -> dict[str, bytes]:
        """Returns `tokenizer.json` and `tokenizer_config.json`, as other programs expect them."""

    def save(self, folder: str | Path, force: bool = False) -> None:
        """Writes those files into a new folder; `force` replaces a tokenizer folder that Pellucid wrote."""
        write_folder(Path(check_path("folder", folder)), self.files(), check_bool("force", force))

    def id_of(self, token: str) -> int | None:
        """Returns the id of a token, or None where the vocabulary does not have it."""
        check_text("token", token)
        return next((id for id in range(self.vocab_size) if self.token(id) == token), None)


def show_blanks(text: str) -> str:
    r"""
    >>> print(show_blanks(" a cat\n"))
    ·a·cat\n
    """
    escaped = escape_controls(text.replace("\n", "\\n").replace("\t", "\\t"), keep="")
    return escaped.replace(" ", "·")  # last: a vocabulary is mostly ASCII until then, which is fast to escape


class ByteDecodeStream(DecodeStream):
    """Tokens that are bytes: a character is complete with its last byte."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, id: int) -> str:
        return self.decoder.decode(self.tokenizer.bytes_of(id))

    def end(self) -> str:
        return self.decoder.decode(b"", final=True)


def check_encodable(text: str) -> str:
    """Returns the text; one that UTF-8 cannot encode is refused."""
    try:
        check_text("text", text).encode("utf-8")
    except UnicodeEncodeError as error:
        raise TokenError(
            f"character {error.start} of the text is half of a surrogate pair, {text[error.start]!r}, "
            "which UTF-8 cannot encode. Read the file as UTF-8, or replace such characters."
        ) from None
    return text


def check_id(id: int, vocab_size: int) -> int:
    """Returns the id; one outside the vocabulary is refused."""
    if type(id) is not int:
        try:
            id = check_int("id", id)
        except UsageError as error:
            raise TokenError(str(error)) from None
    if not 0 <= id < vocab_size:
        raise TokenError(f"no token has the id {id}; ids go from 0 to {vocab_size - 1}.")
    return id


def check_id_list(ids: Iterable[int], vocab_size: int) -> Iterator[int]:
    """Yields the ids of what lists them; one outside the vocabulary is refused."""
    try:
        listed = check_iterator("ids", ids, "a list of ids")
    except UsageError as error:
        raise TokenError(str(error)) from None
    return (check_id(id, vocab_size) for id in listed)

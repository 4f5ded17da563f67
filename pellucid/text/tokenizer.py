"""What every tokenizer can do, whatever its kind."""

import codecs
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.errors import TokenError
from pellucid.format import escape_controls
from pellucid.text.folder import write_folder

Ids = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Special:
    """The tokens that begin, end and pad a text. They are never read out of a user's text unless asked."""

    bos: str | None = None
    eos: str | None = None
    pad: str | None = None

    def names(self) -> list[str]:
        """Each once, in a fixed order."""
        return list(dict.fromkeys(name for name in (self.eos, self.bos, self.pad) if name is not None))


class Stream(ABC):
    """Decoding token by token: what is given out is never half a character."""

    @abstractmethod
    def feed(self, id: int) -> str:
        """The text that is certain once this token has come."""

    @abstractmethod
    def end(self) -> str:
        """What was held back; all pieces together are the decoded text."""


class Tokenizer(ABC):
    """Text to ids and back. `kind` is the name it was trained under."""

    special: Special

    @property
    @abstractmethod
    def kind(self) -> str: ...

    @property
    @abstractmethod
    def vocab_size(self) -> int: ...

    @abstractmethod
    def encode(self, text: str, parse_special: bool = False) -> list[int]:
        """The ids of a text. Special tokens in it are ordinary text, unless they are to be parsed."""

    def encode_array(self, text: str) -> Ids:
        """The ids of a text as an array; faster than `encode` where a library can write into one."""
        ids = self.encode(text)
        return np.fromiter(ids, np.int64, len(ids))

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids."""

    @abstractmethod
    def stream(self) -> Stream:
        """A fresh decoder that takes one id at a time."""

    @abstractmethod
    def token(self, id: int) -> str:
        """One token as the tokenizer's file writes it."""

    def visible(self, id: int) -> str:
        """One token as people should see it: a space is ·, a line feed \\n."""
        return show_blanks(self.token(id))

    @abstractmethod
    def bytes_of(self, id: int) -> bytes:
        """One token as it stands in the text."""

    @abstractmethod
    def offsets(self, text: str) -> list[tuple[int, int]]:
        """For each token of the text, where its bytes begin and end."""

    @abstractmethod
    def files(self) -> dict[str, bytes]:
        """Returns `tokenizer.json` and `tokenizer_config.json`, as other programs expect them."""

    def save(self, folder: str | Path, force: bool = False) -> None:
        """Writes those files into a new folder; `force` replaces a tokenizer folder that Pellucid wrote."""
        write_folder(Path(folder), self.files(), force)

    def id_of(self, token: str) -> int | None:
        """The id of a special token, or None where there is none of that name."""
        return next((id for id in range(self.vocab_size) if self.token(id) == token), None)


def show_blanks(text: str) -> str:
    r"""
    >>> print(show_blanks(" a cat\n"))
    ·a·cat\n
    """
    return escape_controls(text.replace(" ", "·").replace("\n", "\\n").replace("\t", "\\t"), keep="")


class ByteStream(Stream):
    """Tokens that are bytes: a character is given out when its last byte has come."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, id: int) -> str:
        return self.decoder.decode(self.tokenizer.bytes_of(id))

    def end(self) -> str:
        return self.decoder.decode(b"", final=True)


def checked(text: str) -> str:
    """The text, if it can be written as UTF-8 at all."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TokenError(
            f"character {error.start} of the text is half of a surrogate pair, {text[error.start]!r}, "
            "and stands for nothing. Read the file as UTF-8, or replace such characters."
        ) from None
    return text


def known(id: int, vocab_size: int) -> int:
    """The id, if there is such a token."""
    if not 0 <= id < vocab_size:
        raise TokenError(f"no token has the id {id}; ids go from 0 to {vocab_size - 1}.")
    return id

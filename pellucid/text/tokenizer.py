"""The interface of every tokenizer, and its files: a folder of its own, written whole or not at all."""

import codecs
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.base.arguments import check_bool, check_int, check_iterator, check_path, check_text
from pellucid.base.errors import FileError, TokenError, UsageError
from pellucid.base.files import Kind, new_folder, read_json, whole_file
from pellucid.base.formatting import escape_controls

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
        path, force = Path(check_path("folder", folder)), check_bool("force", force)
        with new_folder(path, TOKENIZER_FOLDER, force) as new:
            for name, data in self.files().items():
                with whole_file(new / name) as file:
                    file.write(data)

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


# ---- the files of a tokenizer

FORMAT = 1
"""The number of our own entry in `tokenizer_config.json`."""
FILE, SETTINGS = "tokenizer.json", "tokenizer_config.json"
SPECIAL = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
"""What `tokenizer.json` says of a special token, besides its id and its text."""


def make_file(
    model: dict[str, Any], vocab: Mapping[str, int], special: Iterable[str], pre_tokenizer: Any, decoder: Any
) -> dict[str, Any]:
    """Returns a `tokenizer.json` that adds nothing to a text: its model, and the special tokens with their
    ids."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": vocab[name], "content": name} | SPECIAL for name in special if name in vocab],
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": decoder,
        "model": model,
    }


def folder_files(tokenizer: str, special: Special, kind: str, unknown: str | None = None) -> dict[str, bytes]:
    """Returns the files of a tokenizer by name, as other programs expect them."""
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "pellucid": {"format": FORMAT, "kind": kind},
    }
    names = {
        "bos_token": special.bos,
        "eos_token": special.eos,
        "pad_token": special.pad,
        "unk_token": unknown,
    }
    config |= {key: name for key, name in names.items() if name is not None}
    settings = json.dumps(config, ensure_ascii=False, indent=2)
    return {FILE: f"{tokenizer}\n".encode(), SETTINGS: f"{settings}\n".encode()}


def _why_not(path: Path) -> str:
    if not path.is_dir():
        return "it is a file"
    if others := sorted(entry.name for entry in path.iterdir() if entry.name not in (FILE, SETTINGS)):
        return f"it holds {others[0]}"
    try:
        settings = read_json(path / SETTINGS)
    except FileError:
        settings = None
    written_here = isinstance(settings, dict) and "pellucid" in settings and (path / FILE).is_file()
    return "" if written_here else "it is not a tokenizer that Pellucid wrote"


TOKENIZER_FOLDER = Kind("a tokenizer folder", _why_not)

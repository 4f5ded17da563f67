"""A tokenizer in the standard form, `tokenizer.json`: byte-level BPE, Unigram, WordPiece, or anybody's.

The `tokenizers` library says what the file means. Byte-level BPE is encoded by `tiktoken` from the same
ranks, which gives the same ids many times faster; a test holds the two equal.
"""

import json
import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, TypeVar

import tiktoken
import tokenizers

from pellucid.errors import FileError, TokenError
from pellucid.text import alphabet
from pellucid.text.folder import folder_files
from pellucid.text.native import call_native
from pellucid.text.tokenizer import (
    ByteStream,
    Ids,
    Special,
    Stream,
    Tokenizer,
    checked,
    known,
    show_blanks,
)

_STRAY = re.compile("([^\udc80-\udcff]+)|([\udc80-\udcff])")
"""Stretches of text, and the single bytes that are no text, as `surrogateescape` writes them."""

GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""How GPT-2 cuts a text into words before merging, and how `tokenizers`' ByteLevel does."""

_SAME_WORDS = {
    GPT2_SPLIT: r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
}
"""Patterns that cut the same words without going back over what they have read: `++` keeps what it took."""


def _with_the_rest(pattern: str) -> str:
    """What a pattern leaves out between two words is a piece of its own; tiktoken would drop it."""
    return rf"(?:{pattern})|(?:(?!{pattern})[\s\S])+"


LARGEST_ID = 1 << 24
T = TypeVar("T")


class StandardTokenizer(Tokenizer):
    def __init__(self, text: str, special: Special, kind: str = "", name: str = "tokenizer.json") -> None:
        self.text, self.special, self.name = text, special, name
        self.library = self._opened()
        self.library.encode_special_tokens = True  # a user's text cannot name a special token
        if max(self.library.get_vocab().values(), default=0) >= LARGEST_ID:
            raise FileError(
                f"{name} has a token id beyond any vocabulary."
            )  # writing it out would fill the memory
        self.file: dict[str, Any] = json.loads(self.library.to_str())
        self._kind = kind or str(self.file["model"]["type"]).lower()
        self.added: dict[str, int] = {entry["content"]: entry["id"] for entry in self.file["added_tokens"]}
        if missing := [token for token in special.names() if self.library.token_to_id(token) is None]:
            raise FileError(f"{name} has no token {missing[0]!r}, which its configuration names.")

    @property
    def kind(self) -> str:
        return self._kind

    @property
    def vocab_size(self) -> int:
        return self._size

    @cached_property
    def _size(self) -> int:
        return max(self._tokens, default=-1) + 1

    @cached_property
    def _tokens(self) -> dict[int, str]:
        return {id: token for token, id in self.library.get_vocab().items()}

    @cached_property
    def _bytes(self) -> list[bytes]:
        """Each token as it stands in the text, by id; nothing for an id that no token has."""
        found = [b""] * self.vocab_size
        for id, token in self._tokens.items():
            found[id] = (
                alphabet.data(token) if self.byte_level and token not in self.added else token.encode()
            )
        return found

    @cached_property
    def byte_level(self) -> bool:
        """Whether every token's letters are bytes."""
        letters = set().union(*(token for token in self._tokens.values() if token not in self.added))
        is_decoded_so = (self.file.get("decoder") or {}).get("type") == "ByteLevel"
        return is_decoded_so and letters <= alphabet.BYTE.keys()

    @cached_property
    def split(self) -> str | None:
        """The pattern that cuts words where tiktoken can take over, else None: byte-level BPE, merged in the
        order of its ids, with nothing done to the text before."""
        model, before = self.file["model"], self.file.get("pre_tokenizer") or {}
        if (
            model["type"] != "BPE"
            or not self.byte_level
            or self.file.get("normalizer")
            or model.get("dropout")
        ):
            return None
        if any(entry["id"] in self._merged for entry in self.file["added_tokens"]):
            return None
        merged = [model["vocab"].get("".join(_pair(merge)), -1) for merge in model["merges"]]
        plain_bytes = (letter in model["vocab"] and letter not in self.added for letter in alphabet.BYTE)
        if merged != sorted(set(merged)) or not all(
            plain_bytes
        ):  # tiktoken panics at a byte it does not know
            return None
        plain = {"type": "ByteLevel", "add_prefix_space": False}
        if before.items() >= (plain | {"use_regex": True}).items():
            return GPT2_SPLIT
        steps = before.get("pretokenizers", [])
        if before.get("type") == "Sequence" and len(steps) == 2:
            cut = steps[0]
            if (
                cut.items() >= {"type": "Split", "behavior": "Isolated", "invert": False}.items()
                and "Regex" in cut["pattern"]
                and steps[1].items() >= (plain | {"use_regex": False}).items()
            ):
                return str(cut["pattern"]["Regex"])
        return None

    @property
    def unknown(self) -> str | None:
        """The token that stands for what is in no other, where there is one."""
        found = self.file["model"].get("unk_token")
        return found if isinstance(found, str) else None

    @cached_property
    def _merged(self) -> set[int]:
        return {
            self.file["model"]["vocab"].get("".join(_pair(merge)), -1)
            for merge in self.file["model"]["merges"]
        }

    @cached_property
    def _fast(self) -> tiktoken.Encoding | None:
        if self.split is None:
            return None
        vocab = self.file["model"]["vocab"]
        ranks = {alphabet.data(token): id for token, id in vocab.items() if token not in self.added}
        words = _SAME_WORDS.get(self.split) or _with_the_rest(self.split)
        return call_native(
            f"{self.name} is not a tokenizer that can be used",
            lambda: tiktoken.Encoding(
                self.name, pat_str=words, mergeable_ranks=ranks, special_tokens=self.added
            ),
        )

    def encode(self, text: str, parse_special: bool = False) -> list[int]:
        checked(text)
        if fast := self._fast:
            return self._applied(
                lambda: (
                    fast.encode(text, allowed_special="all") if parse_special else fast.encode_ordinary(text)
                )
            )
        return list(self._encoding(text, self._parsing if parse_special else self.library).ids)

    def encode_array(self, text: str) -> Ids:
        if (fast := self._fast) is None:
            return super().encode_array(text)
        checked(text)
        return self._applied(lambda: fast.encode_to_numpy(text, disallowed_special=()))

    def encode_bytes(self, data: bytes) -> list[int]:
        """The ids of any bytes, text or not; `decode_bytes` gives them back. For byte-level tokenizers."""
        ids: list[int] = []
        for text, stray in _STRAY.findall(data.decode("utf-8", "surrogateescape")):
            ids += self.encode(text) if text else [self._byte_ids[ord(stray) - 0xDC00]]
        return ids

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        return b"".join(self.bytes_of(id) for id in ids)

    @cached_property
    def _byte_ids(self) -> dict[int, int]:
        if not self.byte_level:
            raise TokenError(f"{self.name} reads text, not bytes: its kind is {self.kind}.")
        return {token[0]: id for id, token in enumerate(self._bytes) if len(token) == 1}

    @cached_property
    def _parsing(self) -> Any:
        return self._opened()

    def _opened(self) -> tokenizers.Tokenizer:
        library: tokenizers.Tokenizer = call_native(
            f"{self.name} is not a tokenizer that can be used",
            lambda: tokenizers.Tokenizer.from_str(self.text),
        )
        library.no_truncation()  # of a text that is given, nothing is cut off and nothing added
        library.no_padding()
        return library

    def _encoding(self, text: str, library: tokenizers.Tokenizer) -> Any:
        return self._applied(lambda: library.encode(text, add_special_tokens=False))

    def _applied(self, call: Callable[[], T]) -> T:
        return call_native(f"{self.name} cannot be applied to this text", call, TokenError)

    def decode(self, ids: Iterable[int]) -> str:
        if self.byte_level:
            return self.decode_bytes(ids).decode("utf-8", "replace")
        found = [known(id, self.vocab_size) for id in ids]
        return self._applied(lambda: str(self.library.decode(found, skip_special_tokens=False)))

    def stream(self) -> Stream:
        return ByteStream(self) if self.byte_level else _Growing(self)

    def token(self, id: int) -> str:
        return self._tokens.get(known(id, self.vocab_size), f"<unused {id}>")

    def visible(self, id: int) -> str:
        if not self.byte_level:
            return show_blanks(self.token(id).replace("▁", " "))
        return show_blanks(self.bytes_of(id).decode("utf-8", "backslashreplace")) or self.token(id)

    def bytes_of(self, id: int) -> bytes:
        return self._bytes[known(id, self.vocab_size)]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        if not self.byte_level:
            starts = [0]
            for letter in text:
                starts.append(starts[-1] + len(letter.encode()))
            return [(starts[a], starts[b]) for a, b in self._encoding(checked(text), self.library).offsets]
        found, end = [], 0
        for id in self.encode(text):
            start, end = end, end + len(self.bytes_of(id))
            found.append((start, end))
        return found

    def id_of(self, token: str) -> int | None:
        id: int | None = self.library.token_to_id(token)
        return id

    def files(self) -> dict[str, bytes]:
        return folder_files(self.text, self.special, self.kind, self.unknown)


class _Growing(Stream):
    """Tokens that depend on their neighbours: give out what decoding one more token adds."""

    def __init__(self, tokenizer: StandardTokenizer) -> None:
        self.tokenizer, self.ids, self.given = tokenizer, list[int](), ""

    def feed(self, id: int) -> str:
        self.ids.append(id)
        text = self.tokenizer.decode(self.ids)
        if text.endswith("\ufffd") or not text.startswith(self.given):
            return ""
        piece, self.given = text[len(self.given) :], text
        return piece

    def end(self) -> str:
        return self.tokenizer.decode(self.ids)[len(self.given) :]


def _pair(merge: Any) -> tuple[str, str]:
    """A merge as the file has it: two tokens, or one text with a space between them."""
    left, right = merge if isinstance(merge, list) else merge.split(" ")
    return left, right

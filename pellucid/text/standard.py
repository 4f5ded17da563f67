"""A tokenizer in the standard form, `tokenizer.json`: byte-level BPE, Unigram, WordPiece and others.

The `tokenizers` library says what the file means. Byte-level BPE is encoded by `tiktoken` from the same
ranks, which gives the same ids many times faster; a test holds the two equal.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from pellucid.base.arguments import check_text, check_type
from pellucid.base.errors import FileError, TokenError
from pellucid.text import alphabet
from pellucid.text.growth_limit import check_growth
from pellucid.text.rust import call_native
from pellucid.text.tokenizer import (
    ByteDecodeStream,
    DecodeStream,
    Ids,
    Special,
    Tokenizer,
    check_encodable,
    check_id,
    check_id_list,
    folder_files,
    show_blanks,
)

if TYPE_CHECKING:  # a model with a vocabulary of words needs neither
    import tiktoken
    import tokenizers

_STRAY = re.compile("([^\udc80-\udcff]+)|([\udc80-\udcff])")
"""Runs of text, and single bytes that are not UTF-8, as `surrogateescape` writes them."""

GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""The pre-tokenization pattern of GPT-2 and of `tokenizers`' ByteLevel."""

_SAME_WORDS = {
    GPT2_SPLIT: r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
}
"""Equivalent patterns without backtracking: `++` is possessive."""


def _with_the_rest(pattern: str) -> str:
    """Returns a pattern that also matches the text between two matches, which tiktoken would drop."""
    return rf"(?:{pattern})|(?:(?!{pattern})[\s\S])+"


LARGEST_ID = 1 << 24
LONG_TEXT = 8_192
"""Characters or ids from which on the library is given a batch of one, so that other threads run meanwhile;
the call itself takes longer, and encodes without offsets."""
CONTEXT = 4
"""Tokens of left context that a streaming decoder keeps; a character has at most as many bytes."""
T = TypeVar("T")


class StandardTokenizer(Tokenizer):
    def __init__(self, text: str, special: Special, kind: str = "", name: str = "tokenizer.json") -> None:
        self.text, self.special, self.name = text, special, name
        self._check_steps()  # first: the library applies them to added tokens when it reads the file
        self.library = self._open_library()
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
        """The bytes of each token in the text, by id; empty for an unused id."""
        found = [b""] * self.vocab_size
        for id, token in self._tokens.items():
            found[id] = (
                alphabet.to_bytes(token) if self.byte_level and token not in self.added else token.encode()
            )
        return found

    @cached_property
    def byte_level(self) -> bool:
        """Returns whether every token is written in the byte alphabet."""
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
        """The unknown token, where there is one."""
        found = self.file["model"].get("unk_token")
        return found if isinstance(found, str) else None

    @property
    def unknown_id(self) -> int | None:
        if self.unknown is not None:
            return self.id_of(self.unknown)
        id = self.file["model"].get("unk_id")  # Unigram names it by its id
        return id if isinstance(id, int) else None

    @property
    def special_tokens(self) -> dict[str, int]:
        added = [entry["content"] for entry in self.file["added_tokens"] if entry["special"]]
        return {name: self.added[name] for name in added} | super().special_tokens

    @cached_property
    def longest_token(self) -> int | None:
        before = self.file.get("pre_tokenizer") or {}
        steps = before["pretokenizers"] if before.get("type") == "Sequence" else [before]
        keeps_all = all(
            step.get("type") in ("ByteLevel", "Digits", "Split") and step.get("behavior") != "Removed"
            for step in steps
        )
        if not (self.byte_level and keeps_all) or self.file.get("normalizer") or self.unknown_id is not None:
            return None
        return max(map(len, self._bytes), default=0)

    @cached_property
    def _merged(self) -> set[int]:
        return {
            self.file["model"]["vocab"].get("".join(_pair(merge)), -1)
            for merge in self.file["model"]["merges"]
        }

    @cached_property
    def _fast(self) -> "tiktoken.Encoding | None":
        if self.split is None:
            return None
        import tiktoken

        vocab = self.file["model"]["vocab"]
        ranks = {alphabet.to_bytes(token): id for token, id in vocab.items() if token not in self.added}
        words = _SAME_WORDS.get(self.split) or _with_the_rest(self.split)
        return call_native(
            f"{self.name} is not a tokenizer that can be used",
            lambda: tiktoken.Encoding(
                self.name, pat_str=words, mergeable_ranks=ranks, special_tokens=self.added
            ),
        )

    def encode(self, text: str, parse_special: bool = False) -> list[int]:
        check_encodable(text)
        if fast := self._fast:
            with contextlib.suppress(TokenError):  # a run of a million blanks is too much for its stack
                return self._call(
                    lambda: (
                        fast.encode(text, allowed_special="all")
                        if parse_special
                        else fast.encode_ordinary(text)
                    )
                )
        library = self._parsing if parse_special else self.library
        if len(text) > LONG_TEXT:
            encode = library.encode_batch_fast
            return list(self._call(lambda: encode([text], add_special_tokens=False)[0].ids))
        return list(self._encoding(text, library).ids)

    def encode_array(self, text: str) -> Ids:
        if (fast := self._fast) is None:
            return super().encode_array(text)
        check_encodable(text)
        with contextlib.suppress(TokenError):  # as above
            return self._call(lambda: fast.encode_to_numpy(text, disallowed_special=()))
        return super().encode_array(text)

    def encode_spans(self, text: str) -> tuple[Ids, Ids]:
        if not self.byte_level:
            return super().encode_spans(text)
        ids = self.encode_array(text)
        ends = np.cumsum(self._sizes[ids])
        return ids, np.stack([ends - self._sizes[ids], ends], axis=1)

    @cached_property
    def _sizes(self) -> Ids:
        """The number of bytes of each token, by id."""
        return np.array([len(token) for token in self._bytes], np.int64)

    def encode_bytes(self, data: bytes) -> list[int]:
        """Returns the ids of any bytes; `decode_bytes` inverts it. For byte-level tokenizers."""
        ids: list[int] = []
        for text, stray in _STRAY.findall(
            check_type("data", data, bytes, "bytes").decode("utf-8", "surrogateescape")
        ):
            ids += self.encode(text) if text else [self._byte_ids[ord(stray) - 0xDC00]]
        return ids

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        return b"".join(self._bytes[id] for id in check_id_list(ids, self.vocab_size))

    @cached_property
    def _byte_ids(self) -> dict[int, int]:
        if not self.byte_level:
            raise TokenError(f"{self.name} reads text, not bytes: its kind is {self.kind}.")
        return {token[0]: id for id, token in enumerate(self._bytes) if len(token) == 1}

    @cached_property
    def _parsing(self) -> Any:
        return self._open_library()

    def _check_steps(self) -> None:
        with contextlib.suppress(ValueError, RecursionError):  # not JSON: the library says so
            check_growth(json.loads(self.text), self.name)

    def _open_library(self) -> "tokenizers.Tokenizer":
        import tokenizers

        library: tokenizers.Tokenizer = call_native(
            f"{self.name} is not a tokenizer that can be used",
            lambda: tokenizers.Tokenizer.from_str(self.text),
        )
        library.no_truncation()  # encode the whole text and nothing else
        library.no_padding()
        return library

    def _encoding(self, text: str, library: "tokenizers.Tokenizer") -> Any:
        return self._call(lambda: library.encode(text, add_special_tokens=False))

    def _call(self, call: Callable[[], T]) -> T:
        return call_native(f"{self.name} cannot be applied to this text", call, TokenError)

    def decode(self, ids: Iterable[int]) -> str:
        if self.byte_level:
            return self.decode_bytes(ids).decode("utf-8", "replace")
        found = list(check_id_list(ids, self.vocab_size))
        if len(found) > LONG_TEXT:
            return self._call(lambda: str(self.library.decode_batch([found], skip_special_tokens=False)[0]))
        return self._call(lambda: str(self.library.decode(found, skip_special_tokens=False)))

    def decode_stream(self) -> DecodeStream:
        return ByteDecodeStream(self) if self.byte_level else _WindowDecodeStream(self)

    @cached_property
    def byte_tokens(self) -> frozenset[int]:
        """The ids of <0x00> … <0xFF>, where the decoder reads runs of them as UTF-8."""
        decoder = self.file.get("decoder") or {}
        if "ByteFallback" not in {step.get("type") for step in (decoder, *decoder.get("decoders", ()))}:
            return frozenset()
        return frozenset(id for id, token in self._tokens.items() if re.fullmatch("<0x[0-9A-F]{2}>", token))

    def token(self, id: int) -> str:
        return self._tokens.get(check_id(id, self.vocab_size), f"<unused {id}>")

    def visible(self, id: int) -> str:
        if not self.byte_level:
            return show_blanks(self.token(id).replace("▁", " "))
        return show_blanks(self.bytes_of(id).decode("utf-8", "backslashreplace")) or self.token(id)

    def bytes_of(self, id: int) -> bytes:
        return self._bytes[check_id(id, self.vocab_size)]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        if not self.byte_level:
            starts = [0]
            for letter in check_encodable(text):
                starts.append(starts[-1] + len(letter.encode()))
            return [(starts[a], starts[b]) for a, b in self._encoding(text, self.library).offsets]
        found, end = [], 0
        for id in self.encode(text):
            start, end = end, end + len(self.bytes_of(id))
            found.append((start, end))
        return found

    def id_of(self, token: str) -> int | None:
        try:
            id: int | None = self.library.token_to_id(check_text("token", token))
        except UnicodeEncodeError:  # half of a surrogate pair
            return None
        return id

    def files(self) -> dict[str, bytes]:
        return folder_files(self.text, self.special, self.kind, self.unknown)


class _WindowDecodeStream(DecodeStream):
    """Tokens whose text depends on their neighbors: decodes a window of the last tokens, not all of them.

    A window begins with `CONTEXT` tokens whose text was returned already, as left context for the decoder; a
    new token adds the difference of two decodings. Two things wait for the next token: a run of byte tokens
    such as <0xE2>, which decodes to U+FFFD as a whole where it is not UTF-8, and a final U+FFFD, which may be
    half a character.
    """

    def __init__(self, tokenizer: StandardTokenizer) -> None:
        self.tokenizer, self.window, self.returned = tokenizer, list[int](), 0
        """The last tokens, and how many characters of their text were returned."""

    def feed(self, id: int) -> str:
        self.window.append(id)
        if id in self.tokenizer.byte_tokens:
            return ""
        piece = self._advance(self._decode_complete())
        if len(self.window) > 2 * CONTEXT:
            self.window = self.window[-CONTEXT:]
            self.returned = len(self._decode_complete())
        return piece

    def end(self) -> str:
        return self._advance(self.tokenizer.decode(self.window))

    def _decode_complete(self) -> str:
        text = self.tokenizer.decode(self.window)
        return text[:-1] if text.endswith("\ufffd") else text

    def _advance(self, text: str) -> str:
        piece, self.returned = text[self.returned :], max(self.returned, len(text))
        return piece


def _pair(merge: Any) -> tuple[str, str]:
    """Returns the two tokens of a merge, which files write as a list or as one text with a space."""
    left, right = merge if isinstance(merge, list) else merge.split(" ")
    return left, right

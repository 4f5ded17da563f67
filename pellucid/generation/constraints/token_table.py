"""The bytes that each token of a tokenizer adds to a text, and where they lead in an automaton."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from pellucid.base.errors import TokenError
from pellucid.generation.constraints.automaton import Automaton
from pellucid.text.standard import StandardTokenizer
from pellucid.text.tokenizer import Tokenizer
from pellucid.text.word_level import WordTokenizer

Ints = np.ndarray[Any, np.dtype[np.int32]]
Trie = dict[int, Any]
"""From a byte to the trie of what follows; from `END` to the ids that end here."""
END = -1
LONGEST_SPELLING = 16
"""Bytes of a token that `count_spelling` tries."""
TRIED = 32
"""Tokens of the text on which a tokenizer's decoder is tried."""


@dataclass(frozen=True, eq=False)
class TokenTable:
    """The tokens that an output may contain, each with its bytes."""

    first: tuple[bytes, ...]
    """By id, at the beginning of the output; b"" for a token that is never allowed."""
    rest: tuple[bytes, ...]
    """By id, after another token: in some tokenizers a space precedes it."""

    @cached_property
    def is_uniform(self) -> bool:
        """Returns whether a token is the same at the beginning and after another."""
        return self.first == self.rest

    @cached_property
    def first_columns(self) -> "Columns":
        return Columns(self.first)

    @cached_property
    def rest_columns(self) -> "Columns":
        return self.first_columns if self.is_uniform else Columns(self.rest)

    @cached_property
    def first_trie(self) -> Trie:
        return make_trie(self.first)

    @cached_property
    def rest_trie(self) -> Trie:
        return self.first_trie if self.is_uniform else make_trie(self.rest)

    @cached_property
    def spellings(self) -> frozenset[bytes]:
        """The bytes of the tokens that follow others."""
        return frozenset(piece for piece in self.rest if 0 < len(piece) <= LONGEST_SPELLING)

    @cached_property
    def single_bytes(self) -> frozenset[int]:
        """The bytes that are tokens by themselves."""
        return frozenset(piece[0] for piece in self.spellings if len(piece) == 1)

    @cached_property
    def bytes(self) -> frozenset[int]:
        """The bytes of all tokens."""
        return frozenset(b"".join({*self.first, *self.rest}))


class Columns:
    """The bytes of all tokens, column by column, the longest token first."""

    def __init__(self, pieces: tuple[bytes, ...]) -> None:
        order = sorted((id for id, piece in enumerate(pieces) if piece), key=lambda id: -len(pieces[id]))
        self.ids = np.array(order, np.int32)
        lengths = np.array([len(pieces[id]) for id in order], np.int64)
        starts = np.cumsum(lengths) - lengths
        text = np.frombuffer(b"".join(pieces[id] for id in order), np.uint8)
        longest = int(lengths[0]) if order else 0
        self.columns = [
            text[starts[: np.searchsorted(-lengths, -column)] + column] for column in range(longest)
        ]
        """Column j: byte j of the tokens that are longer than j, which come first."""

    def advance(self, automaton: Automaton, state: int) -> tuple[Ints, Ints]:
        """Returns the tokens that can follow a state, and the states that they lead to.

        All tokens are advanced together, a byte at a time; those that end or die leave.
        """
        found: list[tuple[Any, Any]] = []
        table = automaton.table.ravel()
        alive = np.arange(len(self.ids))
        states = np.full(len(self.ids), state, np.int32)
        for column in self.columns:
            longer = int(np.searchsorted(alive, len(column)))
            found.append((self.ids[alive[longer:]], states[longer:]))
            alive = alive[:longer]
            states = table.take(states[:longer] * 256 + column[alive])
            is_alive = states >= 0
            alive, states = alive[is_alive], states[is_alive]
            if not alive.size:
                break
        found.append((self.ids[alive], states))
        return np.concatenate([ids for ids, _ in found]), np.concatenate([after for _, after in found])


def make_trie(pieces: Iterable[bytes]) -> Trie:
    """
    >>> make_trie([b"a", b"ab", b""])
    {97: {-1: [0], 98: {-1: [1]}}}
    """
    root: Trie = {}
    for id, piece in enumerate(pieces):
        if piece:
            node = root
            for byte in piece:
                node = node.setdefault(byte, {})
            node.setdefault(END, []).append(id)
    return root


@lru_cache(maxsize=8)
def make_token_table(tokenizer: Tokenizer, vocab_size: int, excluded: frozenset[int]) -> TokenTable:
    """Returns the table of a tokenizer for a model of `vocab_size` rows, without some tokens and without the
    special ones."""
    first, rest = _read_token_bytes(tokenizer)
    size = len(first)

    def keep(pieces: tuple[bytes, ...]) -> tuple[bytes, ...]:
        return tuple(b"" if id in excluded or id >= size else pieces[id] for id in range(vocab_size))

    kept = keep(first)
    return TokenTable(kept, kept if first is rest else keep(rest))


@lru_cache(maxsize=4)
def _read_token_bytes(tokenizer: Tokenizer) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Returns the bytes of each token at the beginning of a text, and after another token."""
    special, ids = _find_special(tokenizer), range(tokenizer.vocab_size)
    if isinstance(tokenizer, StandardTokenizer) and not tokenizer.byte_level:
        return _read_by_decoding(tokenizer, special)
    first = tuple(b"" if id in special else tokenizer.bytes_of(id) for id in ids)
    if isinstance(tokenizer, WordTokenizer):
        return first, tuple(b" " + piece if piece else b"" for piece in first)
    return first, first


def _find_special(tokenizer: Tokenizer) -> frozenset[int]:
    """Returns the tokens that stand for no text: those that begin, end and pad one, and the unknown token."""
    names = [*tokenizer.special.names(), getattr(tokenizer, "unknown", None)]
    found = {id for name in names if name and (id := tokenizer.id_of(name)) is not None}
    if isinstance(tokenizer, StandardTokenizer):
        found |= {entry["id"] for entry in tokenizer.file["added_tokens"] if entry["special"]}
    return frozenset(found)


def _read_by_decoding(
    tokenizer: StandardTokenizer, special: frozenset[int]
) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Returns what the tokenizer's decoder makes of each token; refuses one that looks at what follows."""
    used = [id for id in tokenizer._tokens if id not in special and id not in tokenizer.byte_tokens]
    if not used:
        raise TokenError(f"{tokenizer.name} has no token that stands for text.")
    anchor = used[-1]
    before = tokenizer.decode([anchor])
    first, rest = [b""] * tokenizer.vocab_size, [b""] * tokenizer.vocab_size
    for id in used:
        first[id] = tokenizer.decode([id]).encode()
        rest[id] = tokenizer.decode([anchor, id])[len(before) :].encode()
    for id in tokenizer.byte_tokens:
        first[id] = rest[id] = bytes([int(re.sub("[<>]", "", tokenizer.token(id)), 16)])
    tried = used[:: max(1, len(used) // TRIED)]
    if tokenizer.decode(tried).encode() != first[tried[0]] + b"".join(rest[id] for id in tried[1:]):
        raise TokenError(
            f"{tokenizer.name} cannot be used with a constraint: the text of a token depends on the token "
            "that follows it."
        )
    return tuple(first), tuple(rest)


def count_spelling(piece: bytes, spellings: frozenset[bytes], known: dict[bytes, float]) -> float:
    """Returns the least number of tokens that spell a piece after other tokens, infinite where none do.

    `known` holds the answers so far.

    >>> count_spelling(b"abab", frozenset([b"a", b"b", b"ab"]), {})
    2
    """
    for start in range(len(piece) - 1, -1, -1):
        suffix = piece[start:]
        if suffix not in known:
            known[suffix] = min(
                (
                    1 + (known[suffix[length:]] if suffix[length:] else 0)
                    for length in range(1, min(len(suffix), LONGEST_SPELLING) + 1)
                    if suffix[:length] in spellings
                ),
                default=float("inf"),
            )
    return known[piece] if piece else 0

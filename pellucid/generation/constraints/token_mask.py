"""The tokens that may follow, for each state of a constraint, so that the output always parses.

The text of the output is read from left to right; a state is what its end depends on. A token is allowed
where some accepted text goes on with it and can be completed within the new tokens that are left.
"""

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from typing import Any, NamedTuple

import numpy as np

from pellucid.base.errors import TokenError, UsageError, show
from pellucid.generation.constraints.automaton import DEAD, Automaton
from pellucid.generation.constraints.token_table import LONGEST_SPELLING, Ints, TokenTable

Mask = np.ndarray[Any, np.dtype[np.bool_]]

UNREACHABLE = 2**31 - 1
"""Tokens to acceptance where no tokens lead there."""
CACHED_BYTES = 64 << 20
"""Of the tokens that follow the states seen last."""
MOST_GRAPH = 1 << 27
"""States times tokens that are followed where a tokenizer does not have every byte: about a second."""


class NextTokens(NamedTuple):
    """The tokens that some accepted text goes on with."""

    ids: Ints
    needed: Ints
    """The new tokens that suffice to complete the text after each of them."""


class Constraint(ABC):
    """What an output must be, with the tokens of one tokenizer. States are numbers, so a text can be forked
    by copying one."""

    start: int = 0

    def __init__(self, name: str, tokens: TokenTable, stop_ids: frozenset[int]) -> None:
        self.name, self.tokens = name, tokens
        self.stop_ids = np.array(sorted(id for id in stop_ids if 0 <= id < len(tokens.rest)), np.int64)
        self._stops = stop_ids
        self._cached: OrderedDict[int, NextTokens] = OrderedDict()
        self._cached_bytes = 0
        self._lock = threading.Lock()

    def compute_mask(self, state: int, remaining: int) -> Mask:
        """Returns which tokens may follow, [V]; `remaining` is the number of new tokens left, this one
        included. Stop tokens are allowed where the text is complete.

        As long as every token is one of the mask's, at least one is allowed, or the text `must_end`."""
        found = self.next_tokens(state)
        mask = np.zeros(len(self.tokens.rest), bool)
        mask[found.ids[found.needed < remaining]] = True
        if self.is_complete(state):
            mask[self.stop_ids] = True
        return mask

    def advance(self, state: int, id: int) -> int:
        """Returns the state after a token; a stop token changes nothing."""
        if id in self._stops:
            return state
        pieces = self.tokens.first if state == self.start else self.tokens.rest
        piece = pieces[id] if 0 <= id < len(pieces) else b""
        after = self._walk(state, piece) if piece else DEAD
        if after == DEAD:
            raise TokenError(f"{self.name} cannot go on with the token {id}, {show(piece)}.")
        return after

    def must_end(self, state: int, remaining: int = UNREACHABLE) -> bool:
        """Returns whether nothing but the end can follow: an engine without stop tokens ends the text
        here."""
        return self.is_complete(state) and not (self.next_tokens(state).needed < remaining).any()

    def count_needed(self, state: int) -> int:
        """Returns the number of new tokens that suffice to complete the text."""
        if self.is_complete(state):
            return 0
        return 1 + int(self.next_tokens(state).needed.min(initial=UNREACHABLE - 1))

    def check_limit(self, max_new_tokens: int) -> None:
        """Raises where an output of at most `max_new_tokens` tokens cannot be complete."""
        if (needed := self.count_needed(self.start)) > max_new_tokens:
            raise UsageError(
                f"max_new_tokens={max_new_tokens} is not enough to complete {self.name}: use {needed} "
                "or more."
            )

    def next_tokens(self, state: int) -> NextTokens:
        """Returns the tokens that can follow a state; those of the states seen last are kept."""
        with self._lock:
            if (found := self._cached.get(state)) is not None:
                self._cached.move_to_end(state)
                return found
        found = self._find_next(state)
        with self._lock:
            if state not in self._cached:
                self._cached[state] = found
                self._cached_bytes += _count_bytes(found)
            while self._cached_bytes > CACHED_BYTES and len(self._cached) > 1:
                self._cached_bytes -= _count_bytes(self._cached.popitem(last=False)[1])
        return found

    @property
    def is_full(self) -> bool:
        """Returns whether the next request needs another one: this one has more states than are kept."""
        return False

    @abstractmethod
    def is_complete(self, state: int) -> bool:
        """Returns whether the text may end here."""

    @abstractmethod
    def _find_next(self, state: int) -> NextTokens:
        """Returns the tokens that can follow a state."""

    @abstractmethod
    def _walk(self, state: int, piece: bytes) -> int:
        """Returns the state after bytes, −1 where no accepted text goes on so."""


def _count_bytes(found: NextTokens) -> int:
    return 256 + found.ids.nbytes + found.needed.nbytes


class TableConstraint(Constraint):
    """The texts of an automaton."""

    def __init__(self, name: str, automaton: Automaton, tokens: TokenTable, stop_ids: frozenset[int]) -> None:
        super().__init__(name, tokens, stop_ids)
        if not automaton.bytes:
            raise UsageError(f"{name} matches the empty text alone, so nothing could be generated.")
        spelled = automaton.restrict(tokens.bytes)
        if spelled is None:
            raise TokenError(f"{name} has no text that the tokens of this tokenizer can spell.")
        self.automaton = spelled if tokens.is_uniform else spelled.with_fresh_start()
        if tokens.single_bytes >= spelled.bytes:
            self._needed = _spell_shortest(self.automaton, tokens)
        else:
            self._needed = self._search_tokens()
        if self.count_needed(self.start) >= UNREACHABLE:
            raise TokenError(f"{name} has no text that the tokens of this tokenizer can spell.")

    def is_complete(self, state: int) -> bool:
        return bool(self.automaton.is_accepting[state])

    def _walk(self, state: int, piece: bytes) -> int:
        return self.automaton.walk(state, piece)

    def _find_next(self, state: int) -> NextTokens:
        ids, after = self._follow(state)
        needed = self._needed[after]
        is_live = needed < UNREACHABLE
        return NextTokens(ids[is_live], needed[is_live])

    def _follow(self, state: int) -> tuple[Ints, Ints]:
        is_start = state == self.start and not self.tokens.is_uniform
        columns = self.tokens.first_columns if is_start else self.tokens.rest_columns
        return columns.advance(self.automaton, state)

    def _search_tokens(self) -> Ints:
        """Returns the least number of tokens from each state to acceptance, by following every token from
        every state that tokens lead to. For tokenizers that cannot spell every byte."""
        before: dict[int, list[int]] = {self.start: []}
        waiting, work = deque([self.start]), 0
        while waiting:
            state = waiting.popleft()
            work += len(self.tokens.rest) + 1024
            if work > MOST_GRAPH:
                raise UsageError(
                    f"{self.name} is too large for this tokenizer, which does not have every byte as a "
                    "token: use fewer repetitions, or a model with a byte-level tokenizer."
                )
            for after in np.unique(self._follow(state)[1]).tolist():
                if after not in before:
                    before[after] = []
                    waiting.append(after)
                before[after].append(state)
        needed = np.full(len(self.automaton.table), UNREACHABLE, np.int32)
        ends = [state for state in before if self.automaton.is_accepting[state]]
        needed[ends] = 0
        waiting = deque(ends)
        while waiting:
            state = waiting.popleft()
            for earlier in before[state]:
                if needed[earlier] == UNREACHABLE:
                    needed[earlier] = needed[state] + 1
                    waiting.append(earlier)
        return needed


def _spell_shortest(automaton: Automaton, tokens: TokenTable) -> Ints:
    """Returns the number of tokens that spell the shortest text from each state to acceptance.

    From a state the shortest text goes on with the smallest byte that comes nearer. So the text of the state
    after one of its tokens is the rest of it, and takes one token less.
    """
    count = len(automaton.table)
    step = np.where(automaton.table >= 0, automaton.distance[automaton.table], UNREACHABLE).argmin(1)
    follow = automaton.table[np.arange(count), step].tolist()
    letters = step.tolist()
    needed = [0] * count
    longest = min(LONGEST_SPELLING, max(map(len, tokens.spellings), default=0))
    for state in np.argsort(automaton.distance, kind="stable").tolist():
        if automaton.distance[state] == 0:
            continue
        best, piece, at = UNREACHABLE - 1, bytearray(), state
        for _ in range(min(longest, int(automaton.distance[state]))):
            piece.append(letters[at])
            at = follow[at]
            if needed[at] < best and bytes(piece) in tokens.spellings:
                best = needed[at]
        needed[state] = best + 1
    return np.array(needed, np.int32)

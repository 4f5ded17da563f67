"""A deterministic finite automaton over bytes, as a table."""

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.base.errors import UsageError
from pellucid.generation.constraints.expressions import Expressions

Table = np.ndarray[Any, np.dtype[np.int32]]
Bits = np.ndarray[Any, np.dtype[np.bool_]]

MOST_STATES = 1 << 14
"""16 MiB of table."""
DEAD = -1


@dataclass(frozen=True, eq=False)
class Automaton:
    """States 0 … S − 1, of which 0 is the start; from each of them some text leads to acceptance."""

    table: Table
    """[S 256]: the state after a byte, −1 where no text goes on with it."""
    is_accepting: Bits
    """[S]"""
    distance: Table
    """[S]: the bytes of the shortest text from a state to acceptance."""

    def walk(self, state: int, text: bytes) -> int:
        """Returns the state after a text, −1 where no accepted text begins so."""
        for byte in text:
            if state == DEAD:
                break
            state = int(self.table[state, byte])
        return state

    def accepts(self, text: bytes) -> bool:
        state = self.walk(0, text)
        return state != DEAD and bool(self.is_accepting[state])

    @property
    def bytes(self) -> frozenset[int]:
        """The bytes that some accepted text has."""
        return frozenset(np.flatnonzero((self.table >= 0).any(0)).tolist())

    def restrict(self, bytes: frozenset[int]) -> "Automaton | None":
        """Returns the automaton of those texts that have no other bytes; None where there are none."""
        is_kept = np.isin(np.arange(256), list(bytes))
        return _trim(np.where(is_kept, self.table, np.int32(DEAD)), self.is_accepting)

    def with_fresh_start(self) -> "Automaton":
        """Returns an automaton of the same texts to whose start no byte leads back."""
        table = np.concatenate([self.table[:1], np.where(self.table >= 0, self.table + 1, DEAD)])
        table[0] = np.where(table[0] >= 0, table[0] + 1, DEAD)
        return Automaton(
            table.astype(np.int32),
            np.concatenate([self.is_accepting[:1], self.is_accepting]),
            np.concatenate([self.distance[:1], self.distance]),
        )


def build_automaton(expressions: Expressions, node: int) -> Automaton:
    """Returns the automaton of an expression: a state is a set of nodes, one of which the rest must match."""
    start = frozenset([node])
    numbers = {start: 0}
    waiting, edges = deque([start]), list[list[tuple[int, int]]]()
    while waiting:
        nodes = waiting.popleft()
        out = []
        for mask, after in _split_bytes(expressions, nodes):
            if after not in numbers:
                if len(numbers) == MOST_STATES:
                    raise UsageError(
                        f"{expressions.name} takes more than {MOST_STATES:,} states: use smaller counts of "
                        "repetition, fewer optional parts, or no count at all."
                    )
                numbers[after] = len(numbers)
                waiting.append(after)
            out.append((mask, numbers[after]))
        edges.append(out)
    table = np.full((len(edges), 256), DEAD, np.int32)
    for row, out in enumerate(edges):
        for mask, target in out:
            table[row, _bits_of(mask)] = target
    accepting = np.array([any(map(expressions.is_nullable, nodes)) for nodes in numbers])
    found = _trim(table, accepting)
    if found is None:
        raise UsageError(f"{expressions.name} matches no text at all, so nothing could be generated.")
    return found


def _split_bytes(expressions: Expressions, nodes: frozenset[int]) -> list[tuple[int, frozenset[int]]]:
    """Returns disjoint sets of bytes, each with the nodes that follow all of its bytes."""
    follow: dict[int, set[int]] = {}
    for node in nodes:
        try:
            moves = expressions.moves(node)
        except RecursionError:  # hundreds of optional parts in a row
            raise expressions.make_size_error() from None
        expressions.count_work(len(moves))
        for mask, after in moves:
            follow.setdefault(mask, set()).add(after)
    blocks: list[tuple[int, set[int]]] = []
    for mask, following in follow.items():
        rest, split = mask, list[tuple[int, set[int]]]()
        for block, known in blocks:
            if both := block & rest:
                split.append((both, known | following))
                if only := block & ~both:
                    split.append((only, known))
                rest &= ~both
            else:
                split.append((block, known))
        blocks = [*split, (rest, following)] if rest else split
    return [(mask, frozenset(following)) for mask, following in blocks]


def _trim(table: Table, is_accepting: Bits) -> Automaton | None:
    """Returns the automaton without states from which nothing is accepted; None where the start is one."""
    targets = np.sort(table, 1)
    is_new = np.diff(targets, axis=1, prepend=DEAD) > 0  # each pair of neighbors once
    before: list[list[int]] = [[] for _ in table]
    for state, target in zip(np.nonzero(is_new)[0].tolist(), targets[is_new].tolist(), strict=True):
        before[target].append(state)
    distance = np.full(len(table), DEAD, np.int32)
    distance[is_accepting] = 0
    waiting = deque(np.flatnonzero(is_accepting).tolist())
    while waiting:
        state = waiting.popleft()
        for earlier in before[state]:
            if distance[earlier] < 0:
                distance[earlier] = distance[state] + 1
                waiting.append(earlier)
    if distance[0] < 0:
        return None
    is_live = distance >= 0
    numbers = np.append(np.where(is_live, np.cumsum(is_live) - 1, DEAD), DEAD).astype(np.int32)
    return Automaton(numbers[table[is_live]], is_accepting[is_live], distance[is_live])


def _bits_of(mask: int) -> Bits:
    """Returns the bits of a set of bytes, [256]."""
    bits = np.frombuffer(mask.to_bytes(32, "little"), np.uint8)
    return np.unpackbits(bits, bitorder="little").astype(bool)

"""Regular expressions over bytes, as numbered nodes, and their linear forms; and sets of characters.

Each node means a set of byte strings. Its linear form is what it can read first: pairs (bytes, node), where
after one of the bytes the rest is a text of that node (Antimirov 1996, "Partial derivatives of regular
expressions"). A repetition keeps its counts, so that nothing is written out before it is read, and equal
nodes have equal numbers, so that there are finitely many.
"""

from collections.abc import Iterable, Sequence

from pellucid.base.errors import UsageError

MOST_MOVES = 1 << 19
"""The pairs of linear forms that one expression may take: less than a second of them."""

Move = tuple[int, int]
"""A set of bytes, as the bits of an integer, and the node that follows."""
BYTES, JOIN, UNION, REPEAT = range(4)
NOTHING, EMPTY_TEXT = 0, 1
"""The node without any text, and the node of the empty text."""


class Expressions:
    """The nodes of one expression.

    >>> e = Expressions("a*b")
    >>> node = e.join(e.repeat(e.literal(b"a"), 0, float("inf")), e.literal(b"b"))
    >>> [(bytes([mask.bit_length() - 1]), after == node) for mask, after in e.moves(node)]
    [(b'a', True), (b'b', False)]
    """

    def __init__(self, name: str) -> None:
        self.name = name
        """Of the whole expression, in messages."""
        self._nodes: list[tuple[int, ...] | tuple[int, int, int, float]] = [(), ()]
        self._numbers: dict[tuple[int | float, ...], int] = {}
        self._is_nullable = [False, True]
        self._moves: dict[int, tuple[Move, ...]] = {NOTHING: (), EMPTY_TEXT: ()}
        self._work = 0

    def _number(self, key: tuple[int | float, ...], is_nullable: bool) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self._nodes)
            self._nodes.append(key)  # type: ignore[arg-type]
            self._is_nullable.append(is_nullable)
        return self._numbers[key]

    def is_nullable(self, node: int) -> bool:
        """Returns whether the empty text is one of the node's."""
        return self._is_nullable[node]

    def one_of(self, mask: int) -> int:
        """Returns the node of the single bytes whose bits are set."""
        return self._number((BYTES, mask), False) if mask else NOTHING

    def join(self, left: int, right: int) -> int:
        """Returns the node of the texts of one node followed by those of another."""
        if NOTHING in (left, right):
            return NOTHING
        if EMPTY_TEXT in (left, right):
            return right if left == EMPTY_TEXT else left
        return self._number((JOIN, left, right), self._is_nullable[left] and self._is_nullable[right])

    def join_all(self, nodes: Sequence[int]) -> int:
        joined = EMPTY_TEXT
        for node in reversed(nodes):
            joined = self.join(node, joined)
        return joined

    def literal(self, text: bytes) -> int:
        return self.join_all([self.one_of(1 << byte) for byte in text])

    def union(self, nodes: Iterable[int]) -> int:
        """Returns the node of the texts of any of the nodes."""
        kept = tuple(dict.fromkeys(node for node in nodes if node != NOTHING))
        if len(kept) < 2:
            return kept[0] if kept else NOTHING
        return self._number((UNION, *kept), any(self._is_nullable[node] for node in kept))

    def optional(self, node: int) -> int:
        return self.union([node, EMPTY_TEXT])

    def repeat(self, node: int, least: int, most: float) -> int:
        """Returns the node of least … most texts of a node, one after the other; most may be infinite."""
        least = 0 if self._is_nullable[node] else least
        if most == 0 or node == EMPTY_TEXT or (node == NOTHING and least == 0):
            return EMPTY_TEXT
        if node == NOTHING or (least, most) == (1, 1):
            return node
        return self._number((REPEAT, node, least, most), least == 0)

    def moves(self, node: int) -> tuple[Move, ...]:
        """Returns the linear form of a node."""
        found = self._moves.get(node)
        if found is None:
            found = self._moves[node] = tuple(dict.fromkeys(self._find_moves(node)))
            self.count_work(len(found))
        return found

    def _find_moves(self, node: int) -> list[Move]:
        kind, *parts = self._nodes[node]
        if kind == BYTES:
            return [(int(parts[0]), EMPTY_TEXT)]
        if kind == UNION:
            return [move for part in parts for move in self.moves(int(part))]
        if kind == REPEAT:
            inner, least, most = parts
            rest = self.repeat(int(inner), max(int(least) - 1, 0), most - 1)
            return [(mask, self.join(after, rest)) for mask, after in self.moves(int(inner))]
        found: list[Move] = []
        while self._nodes[node][:1] == (JOIN,):  # a loop, because a text of optional parts is a long chain
            _, left, right = map(int, self._nodes[node])
            found += [(mask, self.join(after, right)) for mask, after in self.moves(left)]
            if not self._is_nullable[left]:
                return found
            node = right
        return found + list(self.moves(node))

    def count_work(self, count: int) -> None:
        """Raises where an expression takes more time than any that is meant to be used."""
        self._work += count
        if self._work > MOST_MOVES:
            raise self.make_size_error()

    def make_size_error(self) -> UsageError:
        return UsageError(
            f"{self.name} is too large: too many ways to read a text have to be followed. Use fewer or "
            "smaller repetitions, or fewer optional parts in a row."
        )


def mask_of(low: int, high: int) -> int:
    """Returns the bits of the bytes low … high.

    >>> bin(mask_of(1, 3))
    '0b1110'
    """
    return (1 << (high + 1)) - (1 << low)


# ---- sets of characters, and their bytes in UTF-8

Ranges = tuple[tuple[int, int], ...]
"""A set of characters: code points low … high, in ascending order, no two ranges touching."""

LAST = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)
"""Code points that are not characters: UTF-8 cannot encode them."""
ENCODED_ALIKE = (0x7F, 0x7FF, 0xFFFF, LAST)
"""The last code points of one, two, three and four bytes."""


def make_ranges(parts: Iterable[tuple[int, int]]) -> Ranges:
    """Returns the union of ranges as a set of characters.

    >>> make_ranges([(5, 9), (1, 2), (3, 4)])
    ((1, 9),)
    """
    found: list[tuple[int, int]] = []
    for low, high in sorted(parts):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return tuple(found)


def negate(ranges: Ranges) -> Ranges:
    """Returns every other character."""
    parts, start = [], 0
    for low, high in make_ranges([*ranges, SURROGATES]):
        if start < low:
            parts.append((start, low - 1))
        start = high + 1
    return tuple(parts + ([(start, LAST)] if start <= LAST else []))


def subtract(ranges: Ranges, others: Ranges) -> Ranges:
    """Returns the characters of one set that are not in the other."""
    return negate(make_ranges([*negate(ranges), *others]))


def encode_set(expressions: Expressions, ranges: Ranges) -> int:
    """Returns the node of the set's characters in UTF-8."""
    return expressions.union(
        expressions.join_all([expressions.one_of(mask_of(low, high)) for low, high in sequence])
        for low, high in subtract(ranges, (SURROGATES,))
        for sequence in _split_range(low, high)
    )


def _split_range(low: int, high: int) -> list[list[tuple[int, int]]]:
    """Returns the UTF-8 of low … high as sequences of ranges of bytes.

    >>> _split_range(0x70, 0x8F)
    [[(112, 127)], [(194, 194), (128, 143)]]
    """
    for last in ENCODED_ALIKE:
        if low <= last < high:
            return _split_range(low, last) + _split_range(last + 1, high)
    first, second = chr(low).encode(), chr(high).encode()
    for place in range(1, len(first)):  # the last bytes must run over all of their values, or be fixed before
        below = (1 << 6 * place) - 1
        if low & ~below != high & ~below:
            if low & below:
                return _split_range(low, low | below) + _split_range((low | below) + 1, high)
            if high & below != below:
                return _split_range(low, (high & ~below) - 1) + _split_range(high & ~below, high)
    return [list(zip(first, second, strict=True))]

"""Sets of characters, and their bytes in UTF-8."""

from collections.abc import Iterable

from pellucid.generation.constraints.expressions import Expressions, mask_of

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

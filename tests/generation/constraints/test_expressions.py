"""Linear forms: what an expression can read first, and what follows; and sets of characters in UTF-8."""

import math
import random

import pytest

from pellucid.base.errors import UsageError
from pellucid.generation.constraints.automaton import build_automaton
from pellucid.generation.constraints.expressions import (
    EMPTY_TEXT,
    LAST,
    NOTHING,
    Expressions,
    encode_set,
    make_ranges,
    negate,
    subtract,
)

BORDERS = [0, 0x7F, 0x80, 0x7FF, 0x800, 0xFFF, 0x1000, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x3FFFF, LAST]


def test_equal_expressions_are_one_node() -> None:
    e = Expressions("x")
    assert e.literal(b"ab") == e.join(e.literal(b"a"), e.literal(b"b"))
    assert e.union([e.literal(b"a"), NOTHING, e.literal(b"a")]) == e.literal(b"a")


def test_nothing_and_the_empty_text_are_absorbed() -> None:
    e = Expressions("x")
    a = e.literal(b"a")
    assert e.join(a, NOTHING) == NOTHING
    assert e.join(a, EMPTY_TEXT) == a
    assert e.repeat(a, 0, 0) == e.repeat(NOTHING, 0, 3) == EMPTY_TEXT
    assert e.repeat(a, 1, 1) == a


def test_a_repetition_counts_down() -> None:
    e = Expressions("x")
    a = e.literal(b"a")
    assert e.moves(e.repeat(a, 2, 3)) == ((1 << 97, e.repeat(a, 1, 2)),)
    assert e.moves(e.repeat(a, 0, 1)) == ((1 << 97, EMPTY_TEXT),)
    endless = e.repeat(a, 0, math.inf)
    assert e.moves(endless) == ((1 << 97, endless),)


def test_a_repetition_of_optional_texts_ends() -> None:
    e = Expressions("x")
    inner = e.repeat(e.optional(e.literal(b"a")), 5, math.inf)
    assert e.is_nullable(inner)
    assert len(e.moves(e.repeat(inner, 1, math.inf))) == 1


def test_a_long_chain_of_optional_parts_is_refused_in_time() -> None:
    e = Expressions("x")
    node = e.join_all([e.optional(e.literal(b"a"))] * 3000)
    with pytest.raises(UsageError, match="too large"):
        build_automaton(e, node)


def test_a_complement_has_every_other_character() -> None:
    assert negate(()) == ((0, 0xD7FF), (0xE000, LAST))
    assert negate(negate(((97, 122),))) == ((97, 122),)
    assert subtract(((97, 122),), ((100, 110), (200, 300))) == ((97, 99), (111, 122))


@pytest.mark.parametrize("seed", range(8))
def test_a_set_accepts_the_encoding_of_its_characters_alone(seed: int) -> None:
    rng = random.Random(seed)
    some = sorted(rng.sample(BORDERS, 4) if seed else [0, 0xD7FF, 0xE000, LAST])
    ranges = make_ranges([(some[0], some[1]), (some[2], some[3])])
    expressions = Expressions("x")
    found = build_automaton(expressions, encode_set(expressions, ranges))
    near = {char + step for char in [*BORDERS, *some] for step in (-1, 0, 1)}
    near |= {rng.randrange(LAST) for _ in range(200)}
    for char in near:
        if 0 <= char <= LAST and not 0xD800 <= char <= 0xDFFF:
            is_in = any(low <= char <= high for low, high in ranges)
            assert found.accepts(chr(char).encode()) == is_in, hex(char)
    for bad in (b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80", b"\xff"):
        assert not found.accepts(bad)

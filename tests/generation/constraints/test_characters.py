"""Sets of characters in UTF-8."""

import random

import pytest

from pellucid.generation.constraints.automaton import build_automaton
from pellucid.generation.constraints.characters import LAST, encode_set, make_ranges, negate, subtract
from pellucid.generation.constraints.expressions import Expressions

BORDERS = [0, 0x7F, 0x80, 0x7FF, 0x800, 0xFFF, 0x1000, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x3FFFF, LAST]


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

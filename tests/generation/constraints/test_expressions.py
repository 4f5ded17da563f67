"""Linear forms: what an expression can read first, and what follows."""

import math

import pytest

from pellucid.base.errors import UsageError
from pellucid.generation.constraints.automaton import build_automaton
from pellucid.generation.constraints.expressions import EMPTY_TEXT, NOTHING, Expressions


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

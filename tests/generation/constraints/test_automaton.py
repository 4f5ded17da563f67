"""The automaton: small ones by hand, and the limits of its size."""

import numpy as np
import pytest

from pellucid.base.errors import UsageError
from pellucid.generation.constraints.automaton import MOST_STATES, Automaton, build_automaton
from pellucid.generation.constraints.expressions import NOTHING, Expressions
from pellucid.generation.constraints.regex import compile_regex

A, B = 97, 98


def test_one_or_more_a_and_a_b_are_three_states() -> None:
    """State 0 has read nothing, 1 some a, 2 the b."""
    found = compile_regex("a+b")
    assert found.table.shape == (3, 256)
    assert (found.table[0, A], found.table[1, A], found.table[1, B]) == (1, 1, 2)
    assert (found.table >= 0).sum() == 3
    assert found.is_accepting.tolist() == [False, False, True]
    assert found.distance.tolist() == [2, 1, 0]


def test_a_state_from_which_nothing_is_accepted_is_removed() -> None:
    e = Expressions("x")
    dead_end = e.join(e.literal(b"b"), e.join(e.literal(b"c"), NOTHING))
    found = build_automaton(e, e.union([e.literal(b"a"), dead_end]))
    assert len(found.table) == 2
    assert found.accepts(b"a") and not found.accepts(b"bc")


def test_a_restriction_keeps_the_texts_of_some_bytes() -> None:
    found = compile_regex("a+b?").restrict(frozenset([A]))
    assert isinstance(found, Automaton)
    assert found.accepts(b"aa") and not found.accepts(b"ab")
    assert compile_regex("a+b").restrict(frozenset([A])) is None


def test_no_byte_leads_back_to_a_fresh_start() -> None:
    found = compile_regex("(ab)*").with_fresh_start()
    assert not (found.table == 0).any()
    assert [found.accepts(text) for text in (b"", b"ab", b"abab", b"aba")] == [True, True, True, False]


def test_each_byte_of_overlapping_sets_leads_where_every_set_says() -> None:
    found = compile_regex("[a-m]x|[h-z]y|[k]z")
    for byte in range(ord("a"), ord("z") + 1):
        for last, is_one in (("x", byte <= ord("m")), ("y", byte >= ord("h")), ("z", byte == ord("k"))):
            assert found.accepts(bytes([byte]) + last.encode()) == is_one


def test_too_many_states_are_refused() -> None:
    with pytest.raises(UsageError, match="states"):
        compile_regex("(a|b)*a(a|b){20}")
    assert len(compile_regex("(a|b)*a(a|b){10}").table) <= MOST_STATES


def test_the_distance_is_that_of_the_shortest_text() -> None:
    found = compile_regex("(abc|de){2,}f")
    assert found.distance[0] == 5
    assert np.all(found.distance >= 0)

"""No text has two derivations: proved on the automaton of each level."""

import pytest

from pellucid.corpora.stories import is_unambiguous
from pellucid.corpora.stories.grammar import Grammar
from pellucid.corpora.stories.levels import LEVELS
from pellucid.corpora.stories.unambiguous import two_ways


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_gives_each_text_in_one_way_only(level: str) -> None:
    assert is_unambiguous(level)


def test_a_text_with_two_derivations_is_found_and_told() -> None:
    double = Grammar({"story": ["[first] [second]"], "first": ["x", "x y"], "second": ["y z", "z"]})
    assert two_ways(double) == "x y z"


def test_a_choice_that_writes_nothing_is_ambiguous() -> None:
    silent = Grammar({"story": ["[first][second]"], "first": ["", "a"], "second": ["", "a"]})
    assert two_ways(silent) == "a"


def test_a_doubt_that_later_words_settle_is_no_ambiguity() -> None:
    late = Grammar({"story": ["[first] [second]"], "first": ["x", "x y"], "second": ["y z", "w"]})
    assert two_ways(late) is None

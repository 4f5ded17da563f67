"""No text has two derivations: proved on the automaton of each level."""

import pytest

from pellucid.data.generated.stories.grammar import Grammar
from pellucid.data.generated.stories.levels import LEVELS
from tests.data.generated.stories.unambiguous import is_unambiguous, two_ways


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_gives_each_text_in_one_way_only(level: str) -> None:
    assert is_unambiguous(level)


def test_a_text_with_two_derivations_is_found() -> None:
    double = Grammar({"story": ["[first] [second]"], "first": ["x", "x y"], "second": ["y z", "z"]})
    assert two_ways(double) == "x y z"


def test_a_choice_that_writes_nothing_is_ambiguous() -> None:
    silent = Grammar({"story": ["[first][second]"], "first": ["", "a"], "second": ["", "a"]})
    assert two_ways(silent) == "a"


def test_a_prefix_that_later_words_decide_is_not_ambiguous() -> None:
    late = Grammar({"story": ["[first] [second]"], "first": ["x", "x y"], "second": ["y z", "w"]})
    assert two_ways(late) is None

"""A grammar that contradicts itself is refused when it is read."""

import pytest

from pellucid.data.generated.stories.grammar import Grammar, GrammarError, Word


def test_a_choice_that_is_not_there_is_named() -> None:
    with pytest.raises(GrammarError, match=r"\[hero\]"):
        Grammar({"story": ["A [hero]."]})


def test_an_option_listed_twice_is_refused() -> None:
    with pytest.raises(GrammarError, match=r"\[hero\] lists an option twice"):
        Grammar({"story": ["A [hero]."], "hero": ["fox", "3| fox"]})


def test_a_choice_made_twice_in_one_story_is_refused() -> None:
    with pytest.raises(GrammarError, match=r"make the choice \['hero'\] twice"):
        Grammar({"story": ["A [hero] and a [hero]."], "hero": ["fox", "hen"]})


def test_a_template_that_cannot_be_read_is_shown_from_the_fault_on() -> None:
    with pytest.raises(GrammarError, match=r"cannot be read from '\[hero' on"):
        Grammar({"story": ["A [hero"]})


def test_a_choice_that_no_story_makes_is_refused() -> None:
    with pytest.raises(GrammarError, match=r"\['hero'\]"):
        Grammar({"story": ["The end."], "hero": ["fox", "hen"]})


def test_weights_become_probabilities() -> None:
    program = Grammar({"story": ["[hero]"], "hero": ["3| fox", Word("hen", weight=1)]})
    assert {o.label: o.probability for name, _, o in program.options() if name == "hero"} == {
        "fox": 0.75,
        "hen": 0.25,
    }

"""The text alone tells every choice, and so its probability."""

import math

import pytest

from pellucid.data.generated.stories import UnparsableText, log_probability, parse, read, stories, story
from pellucid.data.generated.stories.levels import LEVELS
from pellucid.data.generated.stories.parse import accepted_length

MANY = pytest.mark.parametrize("count", [300, pytest.param(50_000, marks=pytest.mark.torture)])


@MANY
@pytest.mark.parametrize("level", LEVELS)
def test_every_story_parses_back_to_its_choices_and_probability(level: str, count: int) -> None:
    for made in stories(level, 11, count=count):
        assert parse(level, made.text) == made.choices
        assert abs(log_probability(level, made.text) - made.log_probability) < 1e-12


def test_a_changed_word_is_refused_with_the_place_and_what_could_stand_there() -> None:
    text = story("tiny", 1, 0).text
    wrong = text.replace("into the pond", "into the sea")
    assert wrong != text
    with pytest.raises(UnparsableText, match=r"fell into the.*'sea\.'"):
        read("tiny", wrong)
    assert log_probability("tiny", wrong) == -math.inf


def test_a_copy_that_contradicts_the_first_mention_is_refused() -> None:
    text = "Once there was a kind king named Tom. He had a red ball, but the marbles fell into the pond."
    with pytest.raises(UnparsableText, match=r"'marbles'.*'ball'"):
        read("tiny", text)


@pytest.mark.parametrize("level", LEVELS)
def test_every_single_lost_word_is_noticed(level: str) -> None:
    words = story(level, 2, 0).text.split(" ")
    for gone in range(len(words)):
        assert log_probability(level, " ".join(words[:gone] + words[gone + 1 :])) == -math.inf


def test_a_story_cut_short_or_continued_is_refused() -> None:
    text = story("easy", 3, 0).text
    with pytest.raises(UnparsableText, match=r"'(\w+)'.*'\1\.'"):
        read("easy", text[: text.rindex(".")])
    with pytest.raises(UnparsableText, match="it has the end"):
        read("easy", text[: text.rindex(" ")])
    with pytest.raises(UnparsableText, match="where it could go on with the end"):
        read("easy", text + " Amen.")


def test_an_empty_text_is_refused() -> None:
    with pytest.raises(UnparsableText, match="after '' it has the end"):
        read("full", "")


@pytest.mark.parametrize("level", LEVELS)
def test_a_text_is_accepted_up_to_the_word_that_no_story_has_there(level: str) -> None:
    for number in range(3):
        text = story(level, 7, number).text
        middle = text.index(" ", len(text) // 2) + 1
        assert accepted_length(level, text) == len(text)
        assert accepted_length(level, text[:middle]) == middle
        assert accepted_length(level, f"{text[:middle]}Xyz {text[middle:]}") == middle
        assert accepted_length(level, f"{text} Xyz") <= len(text) + 1
    assert accepted_length(level, "Xyz") == 0

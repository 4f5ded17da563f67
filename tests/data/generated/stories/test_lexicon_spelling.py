"""Words and marks apart, and the same text again."""

import pytest

from pellucid.data.generated.stories import join, stories, words_of
from pellucid.data.generated.stories.levels import LEVELS


@pytest.mark.parametrize("level", LEVELS)
def test_joined_words_give_the_text_back(level: str) -> None:
    for story in stories(level, 6, count=500):
        assert join(words_of(story.text)) == story.text


@pytest.mark.parametrize("level", LEVELS)
def test_stories_are_plain_ascii_without_double_spaces(level: str) -> None:
    for story in stories(level, 6, count=500):
        assert story.text.isascii() and "  " not in story.text and story.text == story.text.strip()
        assert story.text.endswith(".") and story.text.count('"') % 2 == 0

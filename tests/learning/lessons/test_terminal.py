"""A lesson as text for a terminal of any width."""

import pytest

from pellucid.learning.lessons.ladder import find_lesson, lessons
from pellucid.learning.lessons.page import SECTIONS
from pellucid.learning.lessons.terminal import HIDDEN, write_text

LESSON = find_lesson(13)


def test_a_lesson_is_printed_whole_with_its_answers_hidden_or_shown() -> None:
    hidden, shown = ("\n".join(write_text(LESSON, 80, answers)) for answers in (False, True))
    assert all(f"\n{title.upper()}\n" in hidden for title in SECTIONS)
    assert HIDDEN in hidden and HIDDEN not in shown and "Answer:" in shown
    assert len(shown) > len(hidden)
    assert "{{" not in shown and "<" not in hidden.replace("<!--", "")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_text_keeps_within_the_width_and_tables_are_parted(width: int) -> None:
    for lesson in lessons().values():
        lines = [line for line in write_text(lesson, width) if " " in line.strip()]
        assert max(map(len, lines)) <= width


def test_another_lesson_is_named_by_its_number_so_that_a_sentence_stays_one() -> None:
    text = " ".join("\n".join(write_text(LESSON, 80)).split())
    assert "lesson 14" in text and find_lesson(14).title not in text

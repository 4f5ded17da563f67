"""A lesson as text for a terminal of any width."""

import pytest

from pellucid.learning.lessons.ladder import find_lesson, lessons
from pellucid.learning.lessons.page import SECTIONS
from pellucid.learning.lessons.terminal import HIDDEN, lay_out, write_text

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


def test_plain_text_wraps_paragraphs_and_items_and_keeps_code() -> None:
    text = "**Bold** and `code` and [a link](x.md) go\non and on.\n\n- an item that is rather long\n\n"
    text += "```sh\na  b\n```"
    assert list(lay_out(text, 22)) == [
        "Bold and code and a",
        "link go on and on.",
        "",
        "- an item that is",
        "  rather long",
        "",
        "    a  b",
    ]


def test_marks_around_code_are_removed_and_those_in_code_stay() -> None:
    assert list(lay_out("**Block `0`, *in* full.** `a * b * c`", 80)) == ["Block 0, in full. a * b * c"]


def test_a_long_command_goes_on_after_a_backslash_and_quotes_stay_whole() -> None:
    text = '```sh\npellucid explain abcd "A B" --at "probs[t=1,v=2]" --depth 2\n```\n\n```text\na  b c\n```'
    assert list(lay_out(text, 30)) == [
        "    pellucid explain abcd \\",
        '        "A B" --at \\',
        '        "probs[t=1,v=2]" \\',
        "        --depth 2",
        "",
        "    a  b c",
    ]
    assert list(lay_out("```text\n  X = (1, 2)   ← Q\n```", 17)) == ["      X = (1, 2)", "        ← Q"]


def test_a_table_is_aligned_and_numbers_stand_to_the_right() -> None:
    text = "| P[t,s] | s=0 A | s=1 B |\n| --- | ---: | ---: |\n| t=0 A | 1 | 0 |\n| t=1 B | 0.1956 | 0.8044 |"
    assert list(lay_out(text, 80)) == [
        "  P[t,s]   s=0 A   s=1 B",
        "  t=0 A        1       0",
        "  t=1 B   0.1956  0.8044",
    ]

"""Text that comes in pieces is broken between words, wherever the pieces end."""

import random

import pytest
from rich.cells import cell_len

from pellucid.cli.chat_screen import WordWrap


def wrap(pieces: list[str], width: int) -> str:
    lines = WordWrap(width)
    return "".join(map(lines.feed, pieces)) + lines.end()


def test_a_word_that_does_not_fit_goes_to_the_next_line() -> None:
    assert wrap(["The ", "qui", "ck brown", " fox"], 9) == "The quick\nbrown fox"


def test_line_breaks_and_the_indentation_of_code_stay() -> None:
    assert wrap(["def f():\n", "    return 1\n", "\nEnd"], 20) == "def f():\n    return 1\n\nEnd"


def test_a_word_longer_than_a_line_is_broken() -> None:
    assert wrap(["a abcdefghij b"], 4) == "a\nabcd\nefgh\nij b"


def test_letters_of_two_columns_count_as_two() -> None:
    assert wrap(["日本 日本"], 5) == "日本\n日本"


def test_a_word_is_written_when_it_ends_and_not_before() -> None:
    lines = WordWrap(20)
    assert lines.feed("Hel") == "" and lines.feed("lo ") == "Hello" and lines.feed("you") == ""
    assert lines.end() == " you"


@pytest.mark.parametrize("seed", range(20))
def test_lines_never_exceed_the_width_and_only_spaces_change(seed: int) -> None:
    draw = random.Random(seed)
    text = "".join(draw.choices(["a", "bc", " ", "  ", "\n", "日", "long-word"], k=60))
    width, pieces, at = draw.randint(2, 15), [], 0
    while at < len(text):
        size = draw.randint(1, 6)
        pieces.append(text[at : at + size])
        at += size
    found = wrap(pieces, width)
    assert "".join(found.split()) == "".join(text.split())
    assert all(cell_len(line) <= width for line in found.split("\n"))
    assert found == wrap([text], width)

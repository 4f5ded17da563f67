"""A lesson on the screen: keys turn the pages, and covered numbers are predicted."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer

from pellucid.cli.learn_screen import LessonScreen
from pellucid.learning.lessons.ladder import find_lesson
from pellucid.learning.sheets.history import read_record

Read = Callable[..., list[str]]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Read:
    """Reads lesson 13 with these keys, a line for `input` after Enter, and returns the screens."""
    monkeypatch.setenv("PELLUCID_HOME", str(tmp_path))
    monkeypatch.setenv("LINES", "30")

    def run(*keys: str, columns: int = 80, **settings: bool) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        pressed: Iterator[str] = iter([*keys, "q"])
        screens = list[str]()

        def press() -> str:
            screens.append(capsys.readouterr().out)
            return next(pressed)

        monkeypatch.setattr(typer, "getchar", press)
        monkeypatch.setattr("builtins.input", lambda prompt: next(pressed))
        LessonScreen(find_lesson(13), **settings).show()
        return screens

    return run


def test_keys_turn_the_pages(read: Read) -> None:
    first, formula, back, last, end = read("2", "b", "8", "     ")[:5]
    assert "INTUITION" in first and "1 of 8" in first
    assert "FORMULA" in formula and "Intuition, 1 of 8" in back
    assert "RECAP" in last
    assert "Recap, 8 of 8" in end


def test_after_the_last_section_the_worksheet_is_named(read: Read) -> None:
    assert "pellucid sheet lesson-13" in read("8", *" " * 4)[-1]


def test_a_number_is_covered_until_it_is_predicted(read: Read) -> None:
    covered, right, again, wrong = read("4", "\r", "0", "\r", "7", "\r", "7")[1:]
    assert "Q[1,0] = 0 · 2 + 1 · 0 = □1" in covered and "Enter predict □1" in covered
    assert "Q[1,0] = 0 · 2 + 1 · 0 = 0" in right and "right: Q[1,0] = 0" in right
    assert "wrong" in again and "Q[1,1] = 2" not in again and "= □2" in again and "second try" in again
    assert "wrong" in wrong and "Q[1,1] = 2" in wrong and "□2" not in wrong


@pytest.mark.parametrize("keys", [("0\r",), ("0", ""), ("\r0\r",), ("\r", "0")])
def test_a_number_typed_at_once_is_a_prediction(read: Read, keys: tuple[str, ...]) -> None:
    """With or without Enter before it, and also where it was typed while the screen was drawn."""
    assert "right: Q[1,0] = 0" in read("4", *keys)[2]


def test_a_cover_keeps_its_label_when_another_number_is_uncovered(read: Read) -> None:
    covered, uncovered = read("4", "\r", "0")[1:]
    assert "Q[1,1] = 0 · 0 + 1 · 2 = □2" in covered and "Q[1,1] = 0 · 0 + 1 · 2 = □2" in uncovered
    assert "predict □2" in uncovered


def test_what_is_not_a_prediction_uncovers_nothing(read: Read) -> None:
    empty, word = read("4", "\r", "", "\r", "many")[2:]
    assert "= □1" in empty and "= □1" in word and "'many' is not a prediction" in word


def test_hints_come_one_by_one_and_a_peek_is_recorded(read: Read, tmp_path: Path) -> None:
    first, second, peeked = read("4", "h", "h", "p")[2:]
    assert "It is computed from" in first and "The formula" in second
    assert "= □1" in second and "Q[1,0] = 0\n" in peeked
    (entry,) = read_record(tmp_path / "learner.jsonl").entries
    assert (entry.lesson, entry.level) == (13, None)
    assert [practice.peeks for practice in entry.skills.values()] == [1]


def test_nothing_is_recorded_where_nothing_was_peeked_at_or_no_record_is_kept(
    read: Read, tmp_path: Path
) -> None:
    read("4", "\r", "0")
    read("4", "p", keeps_record=False)
    assert not (tmp_path / "learner.jsonl").exists()


def test_answers_are_hidden_until_they_are_asked_for(read: Read) -> None:
    hidden, shown, again = read("7", "a", "a")[1:]
    assert "hidden" in hidden and "a answers" in hidden
    assert "hidden" not in shown and "Answer:" in shown and "hidden" in again


def test_with_answers_nothing_is_covered(read: Read) -> None:
    assert not any("□" in screen for screen in read("2", "4", " ", "7", shows_answers=True))


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_screen_fits_the_terminal(read: Read, columns: int) -> None:
    for screen in read(*"2345678", columns=columns):
        lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen).splitlines()
        assert len(lines) <= 30
        assert max(len(line) for line in lines if not line.startswith("    ")) <= columns


@pytest.mark.parametrize("key", ["²", "9", "\x1b[A", "é", "\x00"])
def test_any_other_key_lists_the_keys(read: Read, key: str) -> None:
    assert "Keys: Space next" in read(key)[-1]


def test_ctrl_c_among_other_keys_leaves_and_so_does_a_terminal_that_is_gone(read: Read) -> None:
    with pytest.raises(KeyboardInterrupt):
        read("  \x03")
    assert len(read("")) == 1

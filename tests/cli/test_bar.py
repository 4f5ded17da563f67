"""The progress bar is drawn on a terminal alone, and is away while something is printed."""

import sys

import pytest

from pellucid.cli.bar import counting_bar


def count_to(total: int) -> None:
    with counting_bar("prompts", total) as pause:
        for number in range(total):
            with pause():
                print(f"text {number}")


def test_elsewhere_than_on_a_terminal_there_is_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    count_to(3)
    assert capsys.readouterr() == ("text 0\ntext 1\ntext 2\n", "")


def test_on_a_terminal_the_bar_counts_and_what_is_printed_is_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    count_to(3)
    out, err = capsys.readouterr()
    assert out == "text 0\ntext 1\ntext 2\n" and "3/3" in err and "prompts" in err


def test_one_thing_alone_needs_no_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    count_to(1)
    assert capsys.readouterr() == ("text 0\n", "")

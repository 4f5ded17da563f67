"""`pellucid learn`: the ladder, a lesson in a pipe, and on a terminal with its keys."""

import contextlib
import os
import select
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pellucid.learning.lessons.ladder import find_lesson, lesson_sheets, lessons
from pellucid.learning.sheets.file import fill_key
from pellucid.learning.sheets.history import record_marking
from pellucid.learning.sheets.mark import mark_sheet
from tests.cli.commands import Shell
from tests.cli.fork_server import fork_server


def test_the_ladder_has_every_lesson_with_its_needs_and_what_comes_next(shell: Shell) -> None:
    out = shell("learn").out
    for number, lesson in lessons().items():
        (line,) = [line for line in out.splitlines() if line.lstrip().startswith(f"{number} ")]
        assert all(str(need) in line for need in lesson.page.head.needs)
    assert out.rstrip().endswith(f"pellucid learn {min(lessons())}")


def test_the_ladder_shows_progress_and_what_is_due(shell: Shell) -> None:
    sheet = fill_key(lesson_sheets(find_lesson(13))[0])
    record_marking(mark_sheet(sheet))
    assert "finished" in shell("learn").out and "pellucid learn 14" in shell("learn").out
    (key, *_) = (box.key for box in sheet.boxes if not box.exact)
    answers = dict(sheet.answers) | {key: "77"}
    record_marking(mark_sheet(replace(sheet, answers=answers)))
    assert "Due for review" in shell("learn").out


def test_a_narrow_terminal_cuts_no_needs_off(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    lines = shell("learn").out.splitlines()
    assert max(map(len, lines)) <= 50 and any(
        line.startswith(" 14") and line.endswith(" 13") for line in lines
    )


def test_in_a_pipe_the_lesson_is_plain_text(shell: Shell) -> None:
    done = shell("learn", "lesson-13")
    assert done.code == 0 and "□" not in done.out and "\x1b" not in done.out
    assert "Answer:" not in done.out and "Answer:" in shell("learn", "13", "--answers").out


def test_a_lesson_that_is_not_there_is_one_sentence(shell: Shell) -> None:
    done = shell("learn", "99")
    assert done.code == 2 and "99" in done.err and "13" in done.err


@pytest.mark.parametrize(("key", "code"), [("q", 0), ("\x03", 130)], ids=["q", "Ctrl-C"])
def test_a_lesson_on_a_terminal_is_left_by_a_key(key: str, code: int, tmp_path: Path) -> None:
    environment = {"PELLUCID_HOME": str(tmp_path), "TERM": "xterm"}
    _, terminal = fork_server().open_terminal(["learn", "13"], tmp_path, environment)
    out, end = b"", time.monotonic() + 60
    with contextlib.suppress(OSError):  # the command has ended
        while time.monotonic() < end:
            if select.select([terminal], [], [], 0.3)[0]:
                out += os.read(terminal, 65536)
            elif b"q quit" in out:  # a key that comes before the terminal is set to keys is lost
                os.write(terminal, key.encode())
    os.close(terminal)
    assert fork_server().wait() == code
    assert "INTUITION" in out.decode() and b"Traceback" not in out

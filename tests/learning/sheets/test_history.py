"""The learner's record survives a kill and two processes, and says what is due."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pellucid.base.errors import FileError
from pellucid.learning.sheets.history import (
    Practice,
    Record,
    RecordEntry,
    Skill,
    append_entry,
    make_entry,
    read_record,
    record_marking,
    record_path,
    record_peeks,
)
from pellucid.learning.sheets.mark import Grade, mark_sheet
from tests.learning.sheets.by_hand import SHEET, answer

SOFTMAX = Skill("softmax", "fwd")
BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)


def practise(day: float, wrong: int = 0, lesson: int = 13, level: int = 2, asked: int = 4) -> RecordEntry:
    verdicts = {Grade.RIGHT.value: asked - wrong, Grade.WRONG.value: wrong}
    return RecordEntry(
        BEGIN + timedelta(days=day), "a sheet", lesson, level, 0, {SOFTMAX: Practice(verdicts)}
    )


def test_an_entry_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "learner.jsonl"
    entries = (practise(0), practise(1, wrong=2))
    for entry in entries:
        append_entry(entry, path)
    assert read_record(path) == Record(entries)
    assert path.stat().st_mode & 0o077 == 0


def test_without_a_file_the_record_is_empty(tmp_path: Path) -> None:
    assert read_record(tmp_path / "learner.jsonl") == Record()
    assert Record().due() == [] and not Record().progress(13).is_finished


def test_the_place_is_the_data_folder_and_not_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PELLUCID_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert record_path() == Path("/data/pellucid/learner.jsonl")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert record_path() == Path("/home/ada/.local/share/pellucid/learner.jsonl")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert record_path() == Path("/home/ada/Library/Application Support/pellucid/learner.jsonl")
    monkeypatch.setenv("PELLUCID_HOME", "/mine")
    assert record_path() == Path("/mine/learner.jsonl")


# ---- what is due


def test_a_skill_is_due_after_1_2_4_8_days() -> None:
    entries: list[RecordEntry] = []
    day = 0
    for days in (1, 2, 4, 8):
        entries.append(practise(day))
        (due,) = Record(tuple(entries)).due_times().values()
        assert due == BEGIN + timedelta(days=day + days)
        day += days


def test_a_wrong_sheet_makes_a_skill_due_at_once_and_begins_again() -> None:
    record = Record((practise(0), practise(1), practise(3, wrong=1)))
    assert record.due(BEGIN + timedelta(days=3)) == [SOFTMAX]
    record = Record((*record.entries, practise(3.01)))
    assert not record.due(BEGIN + timedelta(days=4))
    assert record.due(BEGIN + timedelta(days=4.02)) == [SOFTMAX]


def test_right_sheets_of_one_day_count_once() -> None:
    record = Record(tuple(practise(hour / 24) for hour in range(5)))
    assert record.due_times() == {SOFTMAX: BEGIN + timedelta(days=1, hours=4)}


def test_a_skill_left_open_is_neither_right_nor_wrong() -> None:
    left = RecordEntry(BEGIN, "", None, 2, 0, {SOFTMAX: Practice({Grade.OPEN.value: 3})})
    assert Record((left,)).due_times() == {}


def test_the_longest_overdue_comes_first() -> None:
    other = Skill("einsum", "bwd")
    late = RecordEntry(BEGIN - timedelta(days=9), "", None, 2, 0, {other: Practice({Grade.WRONG.value: 1})})
    assert Record((practise(0), late)).due(BEGIN + timedelta(days=2)) == [other, SOFTMAX]


def test_a_hundred_right_sheets_do_not_overflow() -> None:
    assert Record(tuple(practise(day) for day in range(100))).due_times()


def test_progress_is_the_best_sheet_of_each_level() -> None:
    record = Record(
        (practise(0, wrong=2), practise(1, wrong=1), practise(2, level=1), practise(3, lesson=14))
    )
    progress = record.progress(13)
    assert progress.best == {2: (3, 4), 1: (4, 4)}
    assert (progress.sheets, progress.is_done(1), progress.is_finished) == (3, True, False)
    assert record.progress(14).is_finished


# ---- from a marking, and from a lesson


def test_an_entry_counts_verdicts_and_mistakes_by_skill() -> None:
    entry = make_entry(mark_sheet(answer(L="0.4791", N="", P0="0.33")), time=BEGIN)
    assert entry.skills[SOFTMAX].verdicts == {"right": 5, "rounding": 1}
    assert entry.skills[Skill("nll", "fwd")].mistakes == {"logarithm to base 10": 1}
    assert entry.skills[Skill("subtract", "fwd")].verdicts == {"open": 1}
    assert (entry.right, entry.asked, entry.level) == (6, 8, 2)


def test_a_sheet_without_answers_is_not_recorded(tmp_path: Path) -> None:
    record_marking(mark_sheet(SHEET), path=tmp_path / "learner.jsonl")
    assert not list(tmp_path.iterdir())


def test_peeks_are_counted_and_make_nothing_due(tmp_path: Path) -> None:
    path = tmp_path / "learner.jsonl"
    record_peeks(15, "backward", [SOFTMAX, SOFTMAX], path)
    record_peeks(15, "backward", [], path)
    record = read_record(path)
    assert (len(record.entries), record.progress(15).peeks, record.due_times()) == (1, 2, {})


# ---- kills and several processes


def test_a_half_written_last_line_is_ignored_and_the_next_entry_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "learner.jsonl"
    append_entry(practise(0), path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole + whole[:length])
        assert len(read_record(path).entries) == 1
        append_entry(practise(1), path)
        assert read_record(path).entries[-1] == practise(1)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{}",
        "[]",
        "null",
        "\x00" * 10,
        "[" * 100_000,
        '{"time": 5}',
        '{"time": "2026-01-01", "sheet": 3, "skills": []}',
        '{"time": "2026-01-01", "sheet": {"title": "", "lesson": -1, "level": 0, "seed": 0}, "skills": []}',
        '{"time": "x", "sheet": {"title": "", "lesson": 1, "level": 0, "seed": 0}, "skills": []}',
    ],
)
def test_a_line_that_is_not_an_entry_is_ignored(tmp_path: Path, line: str) -> None:
    path = tmp_path / "learner.jsonl"
    append_entry(practise(0), path)
    path.write_bytes(line.encode() + b"\n" + path.read_bytes())
    assert len(read_record(path).entries) == 1


APPEND = """
import sys
from pathlib import Path
from tests.learning.sheets.test_history import append_entry, practise
for number in range(int(sys.argv[2])):
    append_entry(practise(number, asked=4), Path(sys.argv[1]))
"""


def begin_appending(path: Path, count: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", APPEND, str(path), str(count)])


def test_two_processes_append_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "learner.jsonl"
    both = [begin_appending(path, 50) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert len(read_record(path).entries) == 100
    assert len(path.read_bytes().splitlines()) == 100


def test_an_entry_waits_while_another_process_writes(tmp_path: Path) -> None:
    path = tmp_path / "learner.jsonl"
    append_entry(practise(0, 1), path)
    writer = threading.Thread(target=append_entry, args=(practise(1, 1), path), daemon=True)
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        writer.start()
        writer.join(0.2)
        assert writer.is_alive() and len(read_record(path).entries) == 1
    writer.join(10)
    assert len(read_record(path).entries) == 2


def test_a_killed_process_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "learner.jsonl"
    process = begin_appending(path, 1_000_000)
    while not path.exists() or path.stat().st_size < 2000:
        time.sleep(0.005)
        assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    lines = path.read_bytes().splitlines()
    assert len(read_record(path).entries) >= len(lines) - 1
    append_entry(practise(0), path)
    assert json.loads(path.read_bytes().splitlines()[-1])


def test_a_failed_write_leaves_the_record_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "learner.jsonl"
    append_entry(practise(0), path)
    before, write = path.read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:10]))
    with pytest.raises(FileError):
        append_entry(practise(1), path)
    assert path.read_bytes() == before


def test_a_pipe_in_its_place_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "learner.jsonl"
    os.mkfifo(path)
    for act in (lambda: append_entry(practise(0), path), lambda: read_record(path)):
        with pytest.raises(FileError):
            act()

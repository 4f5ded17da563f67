"""`log` follows the log of a listed run, line by line, and reads no other file."""

import json
from pathlib import Path

import pytest

from pellucid.base.errors import UsageError
from pellucid.server.explorer.questions.runs import make_run_id
from pellucid.server.explorer.session import Session
from pellucid.training.history.log import read
from tests.training.sample_events import folder


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def follow(run: Path, start: int = 0) -> tuple[list[dict[str, object]], int]:
    """Returns the lines from a byte on, asked for until there are no more, and the byte to ask on from."""
    lines, has_more = list[dict[str, object]](), True
    while has_more:
        found = Session().ask("log", run=make_run_id(run), **{"from": start})
        assert len(found["lines"]) <= 200
        lines += found["lines"]
        start, has_more = found["next"], found["has_more"]
    return lines, start


def test_all_lines_are_read_once_in_order(home: Path) -> None:
    run = folder(home / "runs" / "a", 450)
    lines, end = follow(run)
    true = read(run / "log.jsonl")
    assert [line | {"folder": ""} for line in lines] == [line | {"folder": ""} for line in true]
    assert end == (run / "log.jsonl").stat().st_size
    assert {line["folder"] for line in lines if "folder" in line} == {
        f"step-{i:07}" for i in (100, 200, 300, 400)
    }


def test_a_line_that_is_being_written_is_read_when_it_is_whole(home: Path) -> None:
    run = folder(home / "runs" / "a", 1)
    _, end = follow(run)
    with (run / "log.jsonl").open("ab") as log:
        log.write(b'{"kind": "note", "step"')
        log.flush()
        assert follow(run, end) == ([], end)
        log.write(b": 2}\n")
        log.flush()
        assert follow(run, end)[0] == [{"kind": "note", "step": 2}]


def test_a_log_that_became_shorter_is_read_from_its_beginning(home: Path) -> None:
    run = folder(home / "runs" / "a", 3)
    assert follow(run, 10**9)[0] == follow(run)[0] != []


def test_a_start_inside_a_line_skips_the_rest_of_it(home: Path) -> None:
    run = folder(home / "runs" / "a", 3)
    assert follow(run, 5)[0] == follow(run)[0][1:]


def test_a_damaged_or_huge_line_stops_nothing(home: Path) -> None:
    run = folder(home / "runs" / "a", 1)
    with (run / "log.jsonl").open("ab") as log:
        log.write(b"\xff\x00\n" + b"x" * 450_000 + b'\n{"kind": "note", "about": "a\\u202eb"}\n')
    lines, _ = follow(run)
    assert lines[-1] == {"kind": "note", "about": "a\\u202eb"}
    assert "\u202e" not in json.dumps(lines, ensure_ascii=False)


def test_a_run_without_a_log_has_no_lines(home: Path) -> None:
    run = folder(home / "runs" / "a", 1)
    (run / "log.jsonl").unlink()
    assert follow(run) == ([], 0)


@pytest.mark.parametrize("run", ["a", "runs/a", "../secret", "/etc", "", ".", "%2e%2e", "a\x00", "x" * 65])
def test_only_listed_runs_can_be_named_and_only_by_id(home: Path, run: str) -> None:
    folder(home / "runs" / "a", 1)
    folder(home / "secret", 1)
    with pytest.raises(UsageError):
        Session().ask("log", run=run)
    with pytest.raises(UsageError):
        Session().ask("log", run=make_run_id(home / "secret"))


def test_a_byte_before_the_beginning_is_refused(home: Path) -> None:
    run = folder(home / "runs" / "a", 1)
    with pytest.raises(UsageError):
        Session().ask("log", run=make_run_id(run), **{"from": -1})

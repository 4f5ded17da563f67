"""`runs` lists the runs of the working folder and the session's own, without their paths."""

import json
from pathlib import Path

import pytest

from pellucid.server.explorer.questions.runs import list_run_paths, make_run_id
from pellucid.server.explorer.session import Session
from pellucid.training.run_listing import list_runs
from tests.training.sample_events import folder


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_session(source: Path) -> Session:
    session = Session()
    session.source = str(source)
    return session


def test_a_run_has_the_figures_of_the_command_and_of_its_path_the_last_part(home: Path) -> None:
    folder(home / "runs" / "deep" / "a", 200)
    (row,), (true,) = Session().ask("runs")["runs"], list_runs([Path("runs")])
    assert row["name"] == "a" and row["id"] == make_run_id(home / "runs" / "deep" / "a")
    for key in ("state", "step", "steps", "loss", "best", "best_step", "tokens"):
        assert row[key] == true[key]


def test_the_own_run_of_a_session_is_listed_once(home: Path) -> None:
    own, other = folder(home / "runs" / "a", 5), folder(home / "elsewhere" / "b", 5)
    assert {row["name"] for row in make_session(other).ask("runs")["runs"]} == {"a", "b"}
    assert [row["name"] for row in make_session(own).ask("runs")["runs"]] == ["a"]


def test_the_working_folder_itself_is_not_searched(home: Path) -> None:
    folder(home / "elsewhere" / "b", 5)
    assert Session().ask("runs") == {"runs": [], "omitted": 0}
    assert make_session(home).ask("runs")["runs"] == []


def test_a_broken_run_does_not_tell_where_it_is(home: Path) -> None:
    run = folder(home / "runs" / "a\u202eb", 5)
    (run / "log.jsonl").write_bytes(b'{"kind": "step", "step": 1, "loss": "x"}\n')
    answer = Session().ask("runs")
    assert answer["runs"][0]["state"] == "broken" and answer["runs"][0]["name"] == "a\\u202eb"
    text = json.dumps(answer, ensure_ascii=False)
    assert str(home) not in text and "runs/a" not in text and "\u202e" not in text


def test_a_message_about_a_file_names_the_run_alone(home: Path) -> None:
    run = folder(home / "runs" / "deep" / "a", 5)
    (run / "log.jsonl").unlink()
    (run / "log.jsonl").mkdir()
    (row,) = Session().ask("runs")["runs"]
    assert row["state"] == "broken" and "a/log.jsonl" in row["why"] and "deep" not in row["why"]


def test_many_runs_are_cut_and_counted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.server.explorer.questions.runs.MOST_RUNS", 2)
    for name in "abc":
        folder(home / "runs" / name, 1)
    found = Session().ask("runs")
    assert (len(found["runs"]), found["omitted"], len(list_run_paths(Session()))) == (2, 1, 3)

"""`runs` as a person meets it."""

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pellucid.training.events import Ended, EndReason
from pellucid.training.history.log import Log
from pellucid.training.saving.run_folder import RunFolder
from tests.cli.commands import Shell
from tests.training.sample_events import evaluated, folder, started, stepped
from tests.training.saving.snapshots import ENVIRONMENT, snapshot


@pytest.fixture(autouse=True)
def _columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_runs_are_listed_with_their_state_the_newest_first(shell: Shell, tmp_path: Path) -> None:
    folder(tmp_path / "runs" / "a", 200)
    folder(tmp_path / "runs" / "deep" / "b", 50, end="")
    for name, ago in (("a", 7200), ("deep/b", 90)):
        then = time.time() - ago
        os.utime(tmp_path / "runs" / name / "log.jsonl", (then, then))
    done = shell("runs")
    assert (done.code, done.err) == (0, "")
    assert [line.split() for line in done.out.splitlines()] == [
        ["run", "state", "step", "loss", "best", "at", "gap", "tokens", "age"],
        ["runs/deep/b", "interrupted", "50/50", "3.5752", "205k", "2", "min"],
        ["runs/a", "finished", "200/200", "1.1282", "1.2500", "100", "0.3500", "819k", "2", "h"],
    ]


def test_a_run_whose_lock_is_held_is_running(shell: Shell, tmp_path: Path) -> None:
    run = folder(tmp_path / "x", 5, end="")
    handle = os.open(run / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    assert json.loads(shell("runs", "x", "--json").out)[0]["state"] == "running"
    os.close(handle)
    assert json.loads(shell("runs", "x", "--json").out)[0]["state"] == "interrupted"


def test_plain_data_has_every_figure(shell: Shell, tmp_path: Path) -> None:
    folder(tmp_path / "runs" / "a", 200)
    (row,) = json.loads(shell("runs", "--json").out)
    assert row.pop("age") < 60 and row.pop("loss") == pytest.approx(1.1282, abs=1e-4)
    assert row == {
        "name": "runs/a", "state": "finished", "step": 200, "steps": 200, "best": 1.25, "tokens": 819_200,
        "best_step": 100,
        "why": "finished", "saved": None, "gap": pytest.approx(0.35), "learned": None,
    }  # fmt: skip


def test_gap_and_share_learned_are_those_of_the_best_evaluation(shell: Shell, tmp_path: Path) -> None:
    with Log(folder(tmp_path / "runs" / "a", 1, end="") / "log.jsonl") as log:
        for step, loss, learned in ((2, 1.5, 0.8), (3, 1.0, 0.951), (4, 1.2, 0.9)):
            log.write(replace(evaluated(step, loss), learned=learned))
    done = shell("runs")
    assert "1.0000" in done.out and "0.1000" in done.out and "95.1%" in done.out


def test_a_narrow_terminal_keeps_the_names_and_drops_figures_in_a_fixed_order(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(tmp_path / "runs" / "stories-tiny-lr3e-4", 200)
    folder(tmp_path / "runs" / "sweep" / "of-many-learning-rates" / "seed-0017", 200)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    headings = {}
    for columns in (30, 40, 60, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = re.sub(r"\x1b\[[\d;]*m", "", shell("runs").out).splitlines()
        headings[columns] = lines[0].split()
        assert max(map(len, lines)) <= columns
        assert any("runs/" in line and "seed-0017" in line for line in lines)
        assert any("runs/s" in line and "lr3e-4" in line for line in lines)
    assert headings == {
        30: ["run", "state"],
        40: ["run", "state"],
        60: ["run", "state", "step", "best"],
        100: ["run", "state", "step", "loss", "best", "at", "gap", "tokens", "age"],
    }


def test_less_than_nothing_learned_is_shown_as_nothing(shell: Shell, tmp_path: Path) -> None:
    with Log(folder(tmp_path / "runs" / "a", 1, end="") / "log.jsonl") as log:
        log.write(replace(evaluated(2, 4.2), learned=-3.283))
    assert "-" not in shell("runs").out and "0.0%" in shell("runs").out
    assert json.loads(shell("runs", "--json").out)[0]["learned"] == -3.283


def test_runs_are_listed_without_waiting_for_torch(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "a")
    with run.lock():
        run.begin("steps = 1000\n")
        run.save(snapshot(321), ENVIRONMENT, keep=1)
    program = (
        "import sys; from pellucid.cli import main; sys.argv = ['pellucid', 'runs', sys.argv[1]]\n"
        "try: main()\n"
        "finally: assert 'torch' not in sys.modules"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "321" in done.stdout, done.stderr


def test_a_run_that_goes_on_after_its_end_is_read_from_its_last_lines(shell: Shell, tmp_path: Path) -> None:
    run = folder(tmp_path / "runs" / "a", 100)
    with Log(run / "log.jsonl") as log:
        log.write(started(300, step=100))
        log.write(stepped(150))
        log.write(evaluated(150, loss=1.5))
        log.write(Ended(150, EndReason.INTERRUPTED, 1.0, 1.25, 9.0))
    (row,) = json.loads(shell("runs", "--json").out)
    assert (row["state"], row["step"], row["steps"], row["best"]) == ("interrupted", 150, 300, 1.25)


def test_a_run_without_a_step_an_empty_log_and_nan_are_shown(shell: Shell, tmp_path: Path) -> None:
    new = tmp_path / "runs" / "new"
    (new / "checkpoints").mkdir(parents=True)
    (new / "recipe.toml").write_text("")
    (folder(tmp_path / "runs" / "empty", 0) / "log.jsonl").write_bytes(b"")
    with Log(folder(tmp_path / "runs" / "nan", 1, end="") / "log.jsonl") as log:
        log.write(stepped(2, float("nan")))
        log.write(evaluated(2, loss=float("nan")))
    done = shell("runs")
    assert done.code == 0 and "nan" in done.out
    rows = {row["name"]: row for row in json.loads(shell("runs", "--json").out)}
    assert rows["runs/new"]["state"] == rows["runs/empty"]["state"] == "new"
    assert rows["runs/nan"]["loss"] is None and rows["runs/nan"]["best"] is None


def test_a_broken_run_does_not_hide_the_others(shell: Shell, tmp_path: Path) -> None:
    folder(tmp_path / "runs" / "a", 5)
    broken = folder(tmp_path / "runs" / "b", 5)
    (broken / "log.jsonl").write_text('{"kind": "evaluation", "step": 1, "loss": "x"}\n')
    done = shell("runs")
    assert done.code == 0
    assert "runs/a  finished" in done.out and "runs/b  broken" in done.out
    assert "runs/b: " in done.out.splitlines()[-1]


def test_a_name_is_shown_and_does_nothing_to_the_terminal(shell: Shell, tmp_path: Path) -> None:
    folder(tmp_path / "runs" / "[red]\x1b[2J", 5)
    assert r"runs/[red]\x1b[2J" in shell("runs").out


def test_no_runs_and_no_folder_are_reported(shell: Shell) -> None:
    done = shell("runs")
    assert done.code == 0 and done.out.startswith("no runs in runs. `pellucid train FILE` makes one")
    done = shell("runs", "nowhere")
    assert (done.code, done.out) == (2, "")
    assert done.err == "pellucid: there is no folder nowhere; runs are in the folders that `out` named.\n"

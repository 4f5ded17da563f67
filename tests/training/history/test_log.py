"""The log: strict JSON, whole lines whatever happens, and cut where a run goes on."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from pellucid.base.errors import FileError
from pellucid.training.events import Ended, EndReason, Skipped
from pellucid.training.history.curves import Curve, History, run_curves
from pellucid.training.history.log import Log, cut, figures, read, read_milestones
from tests.training.sample_events import evaluated, events, folder, started, stepped


def test_every_event_is_a_line_with_its_kind_first(tmp_path: Path) -> None:
    log = folder(tmp_path / "run", 2, every=2) / "log.jsonl"
    assert [line["kind"] for line in read(log)] == ["start", "step", "step", "evaluation", "saved", "end"]
    assert all(text.startswith('{"kind": "') for text in log.read_text("utf-8").splitlines())
    assert read(log)[1] == {"kind": "step"} | vars(stepped(1))


def test_a_run_that_goes_on_or_is_interrupted_says_so(tmp_path: Path) -> None:
    with Log(tmp_path / "log") as log:
        log.write(started(9, step=3))
        log.write(Ended(5, EndReason.INTERRUPTED, 1.0, None, 1.0))
        log.write(Skipped(6, "loss"), mfu=0.5)
    assert [line["kind"] for line in read(tmp_path / "log")] == ["resume", "interrupted", "skipped"]
    assert read(tmp_path / "log")[2]["mfu"] == 0.5


def test_what_is_not_a_finite_number_is_null_with_a_note(tmp_path: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    with Log(tmp_path / "log") as log:
        log.write(stepped(1, math.nan), norms={"embed": [1.0, math.inf]})
    line = json.loads((tmp_path / "log").read_text("utf-8"), parse_constant=refuse)
    assert line["loss"] is line["smoothed"] is None
    assert line["norms"] == {"embed": [1.0, None]}
    assert line["not_finite"] == {"loss": "nan", "smoothed": "nan", "norms.embed.1": "inf"}


@pytest.mark.parametrize("sample", ["日本語 🙂\u2028\x85", "\x1b[2J\x00\r\n", "half \ud83d of a pair", '"\\'])
def test_any_text_is_one_line_and_comes_back(tmp_path: Path, sample: str) -> None:
    with Log(tmp_path / "log") as log:
        log.write(evaluated(1, sample=sample))
        log.write(stepped(2))
    assert (tmp_path / "log").read_bytes().count(b"\n") == 2
    assert read(tmp_path / "log")[0]["sample"] == sample


def test_a_log_torn_anywhere_keeps_its_whole_lines_and_can_be_added_to(tmp_path: Path) -> None:
    path = folder(tmp_path / "run", 3) / "log.jsonl"
    whole, lines = path.read_bytes(), read(path)
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        kept = lines[: whole[:size].count(b"\n")]
        assert read(path) == kept
        with Log(path) as log:
            log.write(stepped(9))
        assert read(path)[:-1] == kept and read(path)[-1]["step"] == 9


def test_a_block_of_zeros_after_a_power_cut_is_a_torn_line(tmp_path: Path) -> None:
    path = folder(tmp_path / "run", 3) / "log.jsonl"
    lines = read(path)
    with path.open("ab") as file:
        file.write(bytes(4096))
    assert read(path) == lines


def test_damage_in_the_middle_is_reported_with_its_line_and_does_not_keep_a_run_from_going_on(
    tmp_path: Path,
) -> None:
    path = folder(tmp_path / "run", 5) / "log.jsonl"
    pieces = path.read_bytes().split(b"\n")
    pieces[3] = b"{" + bytes(9)
    path.write_bytes(b"\n".join(pieces))
    with pytest.raises(FileError, match="line 4"):
        read(path)
    cut(path, 5)
    assert [line["step"] for line in read(path)] == [0, 1, 2]


def test_a_log_cut_and_gone_on_with_has_the_figures_of_one_never_interrupted(tmp_path: Path) -> None:
    whole = folder(tmp_path / "whole", 400) / "log.jsonl"
    path = folder(tmp_path / "cut", 333, end="interrupted") / "log.jsonl"
    assert cut(path, 300) > 0
    with Log(path) as log:
        log.write(started(400, step=300))
        for event in events(400):
            if event.step > 300:
                log.write(event)
    assert figures(read(path)) == figures(read(whole))
    assert [line["kind"] for line in read(path) if line["kind"] in ("start", "resume", "interrupted")] == [
        "start",
        "resume",
    ]


def test_a_log_that_is_cut_while_it_is_open_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    path = folder(tmp_path / "run", 5) / "log.jsonl"
    with Log(path) as log:
        cut(path, 2)
        log.write(stepped(3))
    assert [line["step"] for line in read(path)] == [0, 1, 2, 3]


def test_no_log_yet_is_nothing_to_cut_and_no_log_at_all_is_reported(tmp_path: Path) -> None:
    assert cut(tmp_path / "log", 3) == 0
    with pytest.raises(FileError, match=r"cannot read .*log: No such file"):
        read(tmp_path / "log")
    with pytest.raises(FileError, match=r"cannot write .*: No such file"):
        Log(tmp_path / "no" / "log")


def test_a_disk_that_takes_half_a_line_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder(tmp_path / "run", 3) / "log.jsonl"
    before, write = path.read_bytes(), os.write
    with Log(path) as log:
        monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:20]))
        with pytest.raises(FileError, match="No space left on device"):
            log.write(stepped(4))
        monkeypatch.undo()
        assert path.read_bytes() == before
        log.write(stepped(4))
    assert read(path)[-1]["step"] == 4


def test_milestones_are_the_last_step_and_all_that_is_not_a_step(tmp_path: Path) -> None:
    path = folder(tmp_path / "run", 250) / "log.jsonl"
    found = [(line["kind"], line["step"]) for line in read_milestones(path)]
    assert found == [
        ("start", 0), ("evaluation", 100), ("saved", 100), ("evaluation", 200), ("saved", 200), ("step", 250),
        ("end", 250),
    ]  # fmt: skip


# ---- curves


def test_smoothing_is_the_mean_of_the_finite_neighbours() -> None:
    """By hand: three around each, fewer at the ends, and one that is missing."""
    curve = Curve(np.arange(5.0), np.array([1.0, 2.0, np.nan, 4.0, 9.0]))
    assert curve.smooth(3).values.tolist() == [1.0, 1.5, 3.0, 6.5, 9.0]
    assert curve.smooth(1).values[[0, 4]].tolist() == [1.0, 9.0] and np.isnan(curve.smooth(1).values[2])


def test_thinning_keeps_the_ends_and_every_spike() -> None:
    values = np.sin(np.arange(100_000) / 3000)
    values[12_345], values[77_777], values[5] = 50, -50, np.nan
    thin = Curve(np.arange(100_000.0), values).thin(500)
    assert len(thin) <= 502 and np.isfinite(thin.values).all()
    assert {0.0, 12_345.0, 77_777.0, 99_999.0} <= set(thin.steps)


def test_a_step_that_was_done_again_counts_as_it_was_done_last() -> None:
    lines = [{"kind": "step", "step": step, "loss": 1.0} for step in range(1, 9)]
    lines += [{"kind": "resume", "step": 4}]
    lines += [{"kind": "step", "step": step, "loss": 2.0} for step in range(5, 7)]
    run = run_curves("a", lines)
    assert run.loss.steps.tolist() == [1, 2, 3, 4, 5, 6]
    assert run.loss.values.tolist() == [1, 1, 1, 1, 2, 2]
    assert np.isnan(run.lr.values).all() and len(run.validation) == 0


def test_an_empty_log_has_empty_curves() -> None:
    assert len(run_curves("a", [])) == 0
    assert len(Curve(np.empty(0), np.empty(0)).smooth(5).thin(10)) == 0


def test_a_history_stays_small_and_keeps_means() -> None:
    history = History(most=8)
    for step in range(1, 1001):
        history.add(step, math.nan if step == 7 else float(step))
    curve = history.curve()
    assert 4 <= len(curve) <= 8
    assert curve.values == pytest.approx(curve.steps)
    assert len(History().curve()) == 0

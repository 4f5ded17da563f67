"""The event files of a run hold the figures of its log, each step once, however often it was begun."""

import sys
from pathlib import Path

import pytest

from pellucid.base.errors import UsageError
from pellucid.training.history.log import Board, Line


def steps(first: int, last: int) -> list[Line]:
    start = {"kind": "resume" if first > 1 else "start", "step": first - 1, "floor": 0.5}
    return [start, *({"kind": "step", "step": step, "loss": float(step)} for step in range(first, last + 1))]


def written(folder: Path, lines: list[Line]) -> None:
    board = Board(folder)
    for line in lines:
        board.write(line)
    board.flush()
    board.close()


def read(folder: Path, tag: str) -> list[tuple[int, float]]:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = events.EventAccumulator(str(folder))
    found.Reload()
    return [(point.step, point.value) for point in found.Scalars(tag)]


def test_every_number_of_a_step_and_of_an_evaluation_is_a_point(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    judged = {"kind": "evaluation", "step": 2, "loss": 1.5, "best": True, "gap": None, "sample": "Once"}
    written(tmp_path, [*steps(1, 2), judged, {"kind": "saved", "step": 2, "seconds": 0.1}])
    assert read(tmp_path, "step/loss") == [(1, 1.0), (2, 2.0)]
    assert read(tmp_path, "evaluation/loss") == [(2, 1.5)]
    for nothing in ("evaluation/best", "evaluation/gap", "evaluation/step", "saved/seconds", "start/floor"):
        with pytest.raises(KeyError):
            read(tmp_path, nothing)


def test_a_run_that_goes_on_has_each_step_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    written(tmp_path, steps(1, 7))
    written(tmp_path, [dict(line, loss=-1.0) for line in steps(5, 8)])
    assert read(tmp_path, "step/loss") == [(1, 1), (2, 2), (3, 3), (4, 4), (5, -1), (6, -1), (7, -1), (8, -1)]


def test_without_the_extra_it_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UsageError, match=r"pip install 'pellucid\[track\]'.*log\.jsonl"):
        Board(tmp_path)

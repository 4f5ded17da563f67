"""A run keeps to its minutes: what the clock decides is written down, and the bits follow from that alone."""

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from pellucid.base.errors import ConfigError
from pellucid.training import pace
from pellucid.training.distributed.ranks import Ranks
from pellucid.training.events import Event, Rescheduled, Stepped
from pellucid.training.history.log import read
from pellucid.training.pace import Pace
from pellucid.training.recipe import Recipe
from pellucid.training.resume import begin, resume
from pellucid.training.run import Run
from pellucid.training.saving.run_folder import RunFolder
from pellucid.verification.runs.rebuild import rebuild_step
from tests.training import small_run_folders
from tests.training.small_run_folders import recipe
from tests.training.small_runs import make_run

Clock = Callable[[int], float]
"""The seconds of a run after this many steps."""
FAST = ("model.n_layer=1", "checkpoint.every=99", "evaluation.every=99", "evaluation.sample=0")


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seconds = [0.0]
    monkeypatch.setattr(pace.time, "monotonic", lambda: seconds[0])
    return seconds


def simulate(now: list[float], clock: Clock, planned: int) -> tuple[int, float, int]:
    """Returns the steps of a run of a minute, how long it took, and how often its steps were changed."""
    now[0], steps, step, changes = 0.0, planned, 0, 0
    paced = Pace(minutes=1)
    while step < steps:
        if paced.is_due(step):
            before, steps = steps, paced.fit(step, steps, planned)
            changes += steps != before
        step += 1
        now[0] = clock(step)
    return steps, now[0], changes


@pytest.mark.parametrize(
    "clock",
    [
        lambda step: 0.5 * step,
        lambda step: 10 + 0.2 * step,  # the first step compiles
        lambda step: 0.1 * step if step < 200 else 20 + 0.7 * (step - 200),  # others begin to compute
        lambda step: 0.8 * step if step < 20 else 16 + 0.08 * (step - 20),  # and end
        lambda step: 7.0 * step,
    ],
)
def test_a_run_on_a_machine_slower_than_planned_ends_in_its_time(now: list[float], clock: Clock) -> None:
    steps, seconds, changes = simulate(now, clock, planned=600)
    assert 48 <= seconds <= 61 + clock(steps) - clock(steps - 1) and 0 < changes < 40


def test_a_run_that_is_as_fast_as_planned_or_faster_keeps_its_steps(now: list[float]) -> None:
    assert simulate(now, lambda step: 0.1 * step, planned=600) == (600, 60.0, 0)
    assert simulate(now, lambda step: 0.01 * step, planned=600) == (600, 6.0, 0)
    assert not Pace(minutes=0).is_due(5)


# ---- runs


def train(run: Run, now: list[float], seconds: float, stop: int = 0) -> list[Event]:
    found = []
    for event in run.events():
        found.append(event)
        if isinstance(event, Stepped):
            now[0] += seconds
            if event.step == stop:
                run.request_stop()
    return found


def start(path: Path, now: list[float], *changes: str, seconds: float = 1.0, stop: int = 0) -> list[Event]:
    folder = RunFolder(path)
    with folder.lock():
        run = begin(recipe(path, *FAST, *changes), folder, lambda _: None)
        return train(run, now, seconds, stop)


def weights(path: Path) -> bytes:
    return (path / "model" / "model.safetensors").read_bytes()


def test_a_run_with_too_many_steps_ends_in_its_minutes_with_a_whole_schedule(
    tmp_path: Path, now: list[float]
) -> None:
    path = tmp_path / "a"
    events = start(path, now, "steps=60", "minutes=0.25", "model.dropout=bernoulli")
    done = Recipe.from_dict(RunFolder(path).read_recipe())
    changes = [event for event in events if isinstance(event, Rescheduled)]
    assert 13 <= done.steps <= 17 and done.steps == changes[-1].steps == events[-1].step
    assert done.extensions[0][1] == changes[0].before == 60
    rates = [event.lr for event in events if isinstance(event, Stepped)]
    wanted = [done.optimizer.lr * done.schedule.factor(at, done.steps_at(at)) for at in range(done.steps)]
    assert rates == wanted and rates[-1] < 0.1 * max(rates)
    assert [line["steps"] for line in read(path / "log.jsonl") if line["kind"] == "rescheduled"]
    assert rebuild_step(path, changes[0].step + 1, ("embed.weight",)).is_exact  # without a clock

    table = tomllib.loads((path / "recipe.toml").read_text()) | {"out": str(tmp_path / "b"), "minutes": 0.0}
    small_run_folders.train(Recipe.from_dict(table))
    assert weights(path) == weights(tmp_path / "b")


def test_a_resumed_run_goes_on_with_what_was_decided(tmp_path: Path, now: list[float]) -> None:
    path = tmp_path / "a"
    first = start(path, now, "steps=60", "minutes=0.25", stop=8)
    assert any(isinstance(event, Rescheduled) for event in first)
    folder = RunFolder(path)
    with folder.lock():
        train(resume(folder, lambda _: None), now, 0.0)
    done = Recipe.from_dict(folder.read_recipe())
    assert folder.read_status() == ("finished", done.steps)
    table = done.to_dict() | {"out": str(tmp_path / "b"), "minutes": 0.0}
    small_run_folders.train(Recipe.from_dict(table))
    assert weights(path) == weights(tmp_path / "b")
    with folder.lock():  # more steps are what counts from now on, whatever the clock says
        train(resume(folder, lambda _: None, changes=[f"steps={done.steps + 3}"]), now, 99.0)
    assert folder.read_status() == ("finished", done.steps + 3) and folder.read_recipe()["minutes"] == 0


def test_the_clock_of_one_rank_decides(now: list[float]) -> None:
    class Second(Ranks):
        def agree(self, word: str) -> str:
            assert word == "", "another rank's clock is not asked for"
            return word

    run = make_run("steps=60", "minutes=0.25", *FAST)
    run.ranks = Second(rank=1)
    train(run, now, 1.0)
    assert run.state.meters.step == 60


def test_minutes_do_not_go_with_epochs() -> None:
    with pytest.raises(ConfigError, match=r"minutes=1 .* data.epochs=2"):
        recipe(Path("a"), "minutes=1", "data.epochs=2")

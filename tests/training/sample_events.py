"""Events of a run that never was, and its folder."""

import math
from collections.abc import Iterator
from pathlib import Path

from pellucid.training.events import Ended, EndReason, Evaluated, Event, Saved, Started, Stepped
from pellucid.training.history.log import Log


def started(steps: int, step: int = 0, floor: float | None = 0.9) -> Started:
    return Started(
        step, steps, 1_234_567, 4096, 7e6, "cpu", "no: there is no C++ compiler here", floor, step > 0
    )


def stepped(step: int, loss: float | None = None) -> Stepped:
    """0.16 seconds a step."""
    loss = 1 + 7 * math.exp(-step / 50) if loss is None else loss
    return Stepped(step, loss, loss, 3e-4, 0.8, 4096 * step, 25600.0, 0.16 * step, 1_200_000_000)


def evaluated(step: int, loss: float = 1.25, sample: str = "Once upon a time.") -> Evaluated:
    return Evaluated(step, loss, True, 1.5, loss - 0.9, sample)


def events(steps: int, every: int = 100, floor: float | None = 0.9, end: str = "finished") -> Iterator[Event]:
    yield started(steps, floor=floor)
    for step in range(1, steps + 1):
        yield stepped(step)
        if step % every == 0:
            yield evaluated(step)
            yield Saved(step, f"runs/a/checkpoints/step-{step:07}", 0.3)
    if end:
        reason = EndReason.from_message(end)
        assert reason is not None
        yield Ended(steps, reason, 1.0, 1.25, 0.16 * steps, end.partition(": ")[2])


def folder(path: Path, steps: int, **settings: object) -> Path:
    """A run folder with a recipe and the log of these events."""
    (path / "checkpoints").mkdir(parents=True)
    (path / "recipe.toml").write_text("")
    with Log(path / "log.jsonl") as log:
        for event in events(steps, **settings):  # type: ignore[arg-type]
            log.write(event)
    return path

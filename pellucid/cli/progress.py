"""The figures of a run so far, from its events; the views only choose and place them."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pellucid.base.formatting import format_bytes, format_clock
from pellucid.training.events import (
    Compared,
    Ended,
    Evaluated,
    Event,
    Rescheduled,
    Saved,
    Skipped,
    Started,
    Stepped,
)
from pellucid.training.history.curves import History, run_curves

RECENT = 50
"""Steps over which a speed is measured; one alone says little."""


class RunProgress:
    """The newest event of each kind, and figures computed from several."""

    started: Started | None = None
    compared: Compared | None = None
    stepped: Stepped | None = None
    evaluated: Evaluated | None = None
    saved: Saved | None = None
    skipped: Skipped | None = None
    rescheduled: Rescheduled | None = None
    ended: Ended | None = None
    step = steps = skips = 0
    best: float | None = None
    _first: tuple[int, float] | None = None
    """The first step of this process and when it was done: it alone compiles."""

    def __init__(self, peak: float | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self.peak, self._now, self.history = peak, now, History()
        self._recent: deque[tuple[int, float]] = deque(maxlen=RECENT)

    def __call__(self, event: Event) -> None:
        self.step = event.step
        setattr(self, type(event).__name__.lower(), event)
        match event:
            case Started() | Rescheduled():
                self.steps = event.steps
            case Stepped():
                self.history.add(event.step, event.loss)
                self._recent.append((event.tokens, event.seconds))
                self._first = self._first or (event.step, self._now())
            case Evaluated() if event.best:
                self.best = event.loss
            case Skipped():
                self.skips += 1
            case Ended() if event.best is not None:
                self.best = event.best

    def remember(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Takes the curve and the best loss from the log of a run that is resumed."""
        past = run_curves("", lines)
        for step, loss in zip(past.loss.steps.tolist(), past.loss.values.tolist(), strict=True):
            self.history.add(round(step), loss)
        losses = past.validation.finite().values
        self.best = float(losses.min()) if len(losses) else self.best

    # ---- computed figures

    @property
    def floor(self) -> float | None:
        return self.started.floor if self.started else None

    @property
    def learned(self) -> float | None:
        """The fraction learned of what a bigram model does not know, where the source knows it."""
        return None if self.evaluated is None else self.evaluated.learned

    @property
    def speed(self) -> float | None:
        """Tokens a second over the last steps."""
        if self.stepped is None:
            return None
        (tokens, seconds), (last, end) = self._recent[0], self._recent[-1]
        return (last - tokens) / (end - seconds) if end > seconds else self.stepped.tokens_per_second

    @property
    def mfu(self) -> float | None:
        """The share of the machine's peak that the model's own arithmetic uses."""
        if not self.peak or self.speed is None or self.started is None:
            return None
        return self.speed * self.started.flops_per_token / self.peak

    @property
    def left(self) -> float | None:
        """Seconds that the remaining steps will take if they go, evaluations and all, as those so far."""
        if self._first is None or self.ended or self.step <= self._first[0]:
            return None
        per_step = (self._now() - self._first[1]) / (self.step - self._first[0])
        return per_step * max(self.steps - self.step, 0)

    # ---- figures as text

    def figure(self, name: str) -> str:
        """Returns one figure as text, "" where it is not known."""
        held = {**dict.fromkeys(STEPPED, self.stepped), **dict.fromkeys(EVALUATED, self.evaluated)}
        holder, field = held.get(name, self), EVALUATED.get(name, name)
        value: float | None = getattr(holder, field, None)
        return "" if value is None else FORMS[name](value)

    def describe(self, names: Iterable[str], first: bool = True) -> str:
        """Returns the known figures, each after its name; the first without where a label precedes it."""
        found = []
        for i, name in enumerate(names):
            if text := self.figure(name):
                label = LABELS.get(name, name) if first or i else ""
                found.append(f"{label} {text}".strip())
        return "  ".join(found)


def describe_reschedule(event: Rescheduled) -> str:
    return f"{event.steps:,} steps instead of {event.before:,}, to end within the minutes of the run"


def describe_compilation(event: Started) -> str:
    why = event.compiled.removeprefix("no: ")
    return "compiled" if why == "yes" else f"not compiled: {why}"


def _loss(value: float) -> str:
    return f"{value:.4f}"


STEPPED = ("loss", "smoothed", "lr", "grad_norm", "tokens", "memory")
EVALUATED = {"validation": "loss", "gap": "gap", "bits": "bits_per_byte", "accuracy": "accuracy"}
FORMS: dict[str, Callable[[float], str]] = {
    **dict.fromkeys(("loss", "smoothed", "validation", "best", "floor", "gap", "bits"), _loss),
    "lr": lambda value: f"{value:.2e}",
    "grad_norm": lambda value: f"{value:.3g}",
    "tokens": lambda value: f"{value:,}",
    "memory": format_bytes,
    "learned": lambda value: f"{max(value, 0):.1%}",  # below 0 nothing is learned yet; the log has the number
    "accuracy": lambda value: f"{value:.1%}",
    "speed": lambda value: f"{value:,.0f} tokens/s",
    "mfu": lambda value: f"{value:.1%}" if value <= 1 else ">100% (peak measured on a busy machine)",
    "left": lambda value: f"{format_clock(value)} left",
}
LABELS = {
    "validation": "loss",
    "floor": "entropy floor",
    "speed": "",
    "mfu": "MFU",
    "left": "",
    "bits": "bits/byte",
    "grad_norm": "gradient norm",
}

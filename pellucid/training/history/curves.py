"""Curves of a run: series of figures over steps, smoothed or thinned for a picture. Nothing is drawn here."""

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pellucid.base.errors import UsageError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """Values over steps in rising order; NaN where a value was not finite."""

    steps: Array
    values: Array

    def __len__(self) -> int:
        return len(self.steps)

    def finite(self) -> "Curve":
        here = np.isfinite(self.values)
        return Curve(self.steps[here], self.values[here])

    def smooth(self, window: int) -> "Curve":
        """Returns the curve of means of the finite values among the `window` values around each."""
        n = len(self)
        reach = (min(window, n) - 1) // 2
        here = np.isfinite(self.values)
        totals = np.concatenate(([0.0], np.cumsum(np.where(here, self.values, 0.0))))
        counts = np.concatenate(([0], np.cumsum(here)))
        place = np.arange(n)
        reach_here = np.minimum(reach, np.minimum(place, n - 1 - place))  # as far to the left as to the right
        first, end = place - reach_here, place + reach_here + 1
        count = counts[end] - counts[first]
        means = (totals[end] - totals[first]) / np.maximum(count, 1)
        return Curve(self.steps, np.where(count > 0, means, np.nan))

    def thin(self, most: int) -> "Curve":
        """Returns at most about `most` points that look the same: the lowest and highest of each interval."""
        curve = self.finite()
        if len(curve) <= most:
            return curve
        edges = np.linspace(0, len(curve), most // 2 + 1).astype(int)
        kept = [0, len(curve) - 1]
        for start, end in itertools.pairwise(edges):
            part = curve.values[start:end]
            kept += [start + int(part.argmin()), start + int(part.argmax())]
        chosen = np.unique(kept)
        return Curve(curve.steps[chosen], curve.values[chosen])


@dataclass(frozen=True)
class RunCurves:
    """The curves of one run."""

    name: str
    loss: Curve
    validation: Curve
    lr: Curve
    grad_norm: Curve
    floor: float | None
    epochs_per_step: float | None = None
    """None where the text has no end, or the log is of a version that counted no epochs."""
    samples: tuple[tuple[float, str], ...] = ()
    """The step of each evaluation, and the text that the model generated there."""

    def __len__(self) -> int:
        return max(len(self.loss), len(self.validation))

    def by_epoch(self) -> "RunCurves":
        """Returns the same curves over epochs in place of steps."""
        if self.epochs_per_step is None:
            raise UsageError(
                f"the log of {self.name} counts no epochs: its text has no end, or the log is of an older "
                "version. Plot it by step."
            )
        scale = self.epochs_per_step
        curves = {
            name: Curve(curve.steps * scale, curve.values)
            for name, curve in vars(self).items()
            if isinstance(curve, Curve)
        }
        return replace(self, **curves)  # type: ignore[arg-type]


def run_curves(name: str, lines: Iterable[Mapping[str, Any]]) -> RunCurves:
    """Returns the curves of a log; of a repeated step, the last one."""
    steps: dict[str, dict[float, float]] = {"loss": {}, "lr": {}, "grad_norm": {}}
    validation: dict[float, float] = {}
    samples: dict[float, str] = {}
    floor = epochs_per_step = None
    for line in lines:
        kind, step = line["kind"], line.get("step", 0)
        if kind == "step":
            for key, series in steps.items():
                series[step] = _number(line.get(key))
        elif kind == "evaluation":
            validation[step] = _number(line.get("loss"))
            if isinstance(sample := line.get("sample"), str) and sample.strip():
                samples[step] = sample
        elif kind == "resume":
            kept: tuple[dict[float, Any], ...] = (*steps.values(), validation, samples)
            for kept_values in kept:
                for later in [s for s in reversed(kept_values) if s > step]:
                    del kept_values[later]
        if step and _number(epoch := line.get("epoch")) > 0:
            epochs_per_step = epoch / step
        floor = floor if math.isnan(given := _number(line.get("floor"))) else given
    loss, lr, norm = map(_curve, steps.values())
    texts = tuple(sorted(samples.items()))
    return RunCurves(name, loss, _curve(validation), lr, norm, floor, epochs_per_step, texts)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else math.nan


def _curve(series: dict[float, float]) -> Curve:
    steps = np.fromiter(series.keys(), np.float64, len(series))
    values = np.fromiter(series.values(), np.float64, len(series))
    order = np.argsort(steps, kind="stable")
    return Curve(steps[order], values[order])


class History:
    """A growing curve in bounded memory: when it is full, neighbors are replaced by their mean."""

    def __init__(self, most: int = 512) -> None:
        self._most, self._width = most, 1
        self._cells: list[list[float]] = []
        """Sum of the steps, sum of the values, and their number."""

    def add(self, step: int, value: float) -> None:
        if not math.isfinite(value):
            return
        if self._cells and self._cells[-1][2] < self._width:
            cell = self._cells[-1]
            cell[0], cell[1], cell[2] = cell[0] + step, cell[1] + value, cell[2] + 1
            return
        if len(self._cells) == self._most:
            pairs = zip(self._cells[::2], self._cells[1::2], strict=True)
            self._cells = [[a + b for a, b in zip(*pair, strict=True)] for pair in pairs]
            self._width *= 2
        self._cells.append([step, value, 1])

    def curve(self) -> Curve:
        cells = np.array(self._cells, np.float64).reshape(-1, 3)
        return Curve(cells[:, 0] / cells[:, 2], cells[:, 1] / cells[:, 2])

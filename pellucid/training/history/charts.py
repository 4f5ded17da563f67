"""The charts of runs: loss, validation loss, learning rate and gradient norm, then each run's layers."""

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.base.errors import FileError, UsageError
from pellucid.base.formatting import escape_controls
from pellucid.report.chart import Axis, Chart, Heatmap, LegendKey, Series
from pellucid.report.figure import Excerpt, Figure, Section
from pellucid.report.svg.marks import COLORS
from pellucid.training.history.curves import Array, Curve, RunCurves, run_curves
from pellucid.training.history.log import read
from pellucid.training.saving.run_folder import LOG, RECORDER

_BLOCK = re.compile(r"blocks\.(\d+)\.")
FIRST, LAST = "embedding", "output"


@dataclass(frozen=True)
class Map:
    """Figures [layer step]; NaN where there is none."""

    title: str
    layers: list[str]
    steps: Array
    values: Array

    def thin(self, most: int) -> "Map":
        """Returns at most `most` steps, evenly spaced, the first and the last among them."""
        if len(self.steps) <= most:
            return self
        chosen = np.unique(np.linspace(0, len(self.steps) - 1, most).round().astype(int))
        return Map(self.title, self.layers, self.steps[chosen], self.values[:, chosen])


def maps(lines: Iterable[Mapping[str, Any]]) -> list[Map]:
    """Returns maps of the residual stream after each block and of its gradients and updates."""
    found = {line["step"]: line for line in lines if line["kind"] == "recorded" and _whole(line)}
    steps = sorted(found)
    columns = [_columns(found[step]) for step in steps]
    made = []
    for title in columns[0] if columns else ():
        layers = sorted({layer for column in columns for layer in column[title]}, key=_height)
        if not layers:  # gradients that were never finite have no norm to show
            continue
        values = [[column[title].get(layer, math.nan) for column in columns] for layer in layers]
        made.append(Map(title, layers, np.array(steps, float), np.array(values)))
    return made


def _columns(line: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Returns the figures of each map at one step, by layer."""
    stream = {"embedded": FIRST} | {
        name: f"block {_BLOCK.match(name)[1]}"  # type: ignore[index]
        for name in line["activations"]
        if name.startswith("blocks.") and name.endswith(".resid_post")
    }
    kept = [
        (layer, line["activations"][name]) for name, layer in stream.items() if name in line["activations"]
    ]
    gradients, weights, updates = dict[str, float](), dict[str, float](), dict[str, float]()
    for name, row in line["parameters"].items():
        layer, weight = _layer(name), _number(row.get("weight"))
        for sums, length in (
            (gradients, _number(row.get("gradient"))),
            (weights, weight),
            (updates, _number(row.get("ratio")) * weight),
        ):
            if not math.isnan(length):  # a weight that was 0 has no ratio
                sums[layer] = math.hypot(sums.get(layer, 0.0), length)
    return {
        "residual stream after each block, RMS": {at: _number(row.get("rms")) for at, row in kept},
        "residual stream after each block, largest": {at: _number(row.get("max")) for at, row in kept},
        "gradient norm": gradients,
        "update / weight": {at: updates[at] / weights[at] for at in updates if weights[at]},
    }


def _layer(name: str) -> str:
    if found := _BLOCK.match(name):
        return f"block {found[1]}"
    return LAST if name.startswith(("final_norm", "unembed")) else FIRST


def _height(layer: str) -> tuple[int, int]:
    return {FIRST: 0, LAST: 2}.get(layer, 1), int(layer.removeprefix("block ")) if "block " in layer else 0


def _whole(line: Mapping[str, Any]) -> bool:
    tables = (line.get("activations"), line.get("parameters"))
    return type(line.get("step")) is int and all(
        isinstance(table, dict) and all(isinstance(row, dict) for row in table.values()) for table in tables
    )


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


POINTS, COLUMNS = 800, 60
"""Points of a series and columns of a heatmap; more than one per pixel cannot be seen."""
LAYERS_SIZE = (300, 130)
SAMPLES = 12
"""Generated texts of a run that are shown."""
STEP, EPOCH = "step", "epoch"
"""What the charts may lie over."""


@dataclass(frozen=True)
class LoggedRun:
    """The curves of a run, and the file in which its recorder kept more."""

    curves: RunCurves
    recorder: Path

    def layers(self) -> list[Map]:
        return maps(read(self.recorder)) if self.recorder.is_file() else []

    def excerpts(self) -> list[Excerpt]:
        """Returns what the model wrote at its evaluations, some of it where there were many."""
        curves = self.curves
        chosen = np.linspace(0, len(curves.samples) - 1, min(SAMPLES, len(curves.samples))).round()
        scale = curves.epochs_per_step
        return [
            Excerpt(f"{curves.name}, step {step:,}" + (f", epoch {step * scale:.2f}" if scale else ""), text)
            for step, text in (curves.samples[int(i)] for i in chosen)
        ]


def read_runs(paths: Sequence[Path], on_empty: Callable[[str], None] = lambda name: None) -> list[LoggedRun]:
    """Returns the runs of these folders or logs; `on_empty` gets the name of each that has made no step."""
    runs = []
    for name, path in zip(_names(paths), paths, strict=True):
        log = path / LOG if path.is_dir() else path
        if not log.is_file():
            raise FileError(f"there is no log {log}: give the folder of a run; `pellucid runs` lists them.")
        curves = run_curves(name, read(log))
        if not len(curves):
            on_empty(name)
            continue
        runs.append(LoggedRun(curves, log.with_name(RECORDER)))
    if not runs:
        raise UsageError("there is nothing to draw: no run has made a step yet.")
    return runs


def _names(paths: Sequence[Path]) -> list[str]:
    """Returns distinct names: the last part of each path if that is enough, otherwise all of it."""
    folders = [path.parent if path.name == LOG else path for path in paths]
    short = [os.path.basename(os.path.realpath(folder)) for folder in folders]  # resolve() fails on a loop
    names = short if len(set(short)) == len(short) else [str(folder) for folder in folders]
    return [escape_controls(name, keep="\n").replace("\n", " ") for name in names]


def run_figure(runs: Sequence[LoggedRun], smooth: int | None = None, by: str = STEP) -> Figure:
    """Returns the four charts of all runs, a section with the layers of each run that recorded them by step,
    and the texts that the models generated."""
    charts = curve_charts([run.curves for run in runs], smooth, by)
    sections = [Section("", charts)]
    for run in runs:
        if by == STEP and (heatmaps := [_heatmap(map, charts[0].x) for map in run.layers()]):
            heading = f"layers of {run.curves.name}" if len(runs) > 1 else "layers"
            sections.append(Section(heading, heatmaps, LAYERS_SIZE))
    names = ", ".join(run.curves.name for run in runs)
    title = f"Runs {names}" if len(runs) > 1 else f"Run {names}"
    excerpts = [excerpt for run in runs for excerpt in run.excerpts()]
    return Figure(title, sections, excerpts=excerpts, found=_summarize([run.curves for run in runs]))


def _summarize(runs: Sequence[RunCurves]) -> str:
    """Returns the lowest validation loss of the runs, or the last loss, in one sentence."""
    known = [(run, curve) for run in runs if len(curve := run.validation.finite())]
    if not known:
        return ""
    run, curve = min(known, key=lambda one: float(one[1].values.min()))
    best, step = float(curve.values.min()), float(curve.steps[int(curve.values.argmin())])
    whose = f" of {len(runs)} runs, of {run.name}," if len(runs) > 1 else ""
    return f"The lowest validation loss{whose} is {best:.4g} nats per token, at step {step:,.0f}."


def _heatmap(map: Map, steps: Axis) -> Heatmap:
    """Returns a heatmap with the embedding at the bottom."""
    map = map.thin(COLUMNS)
    axis = Axis("step", steps.low, steps.high)
    return Heatmap(
        map.title, axis, "layer", map.values[::-1], "log", rows=map.layers[::-1], columns=map.steps
    )


def curve_charts(runs: Sequence[RunCurves], smooth: int | None = None, by: str = STEP) -> list[Chart]:
    """Returns loss, validation loss, learning rate and gradient norm over the steps, or epochs, of all runs.

    Loss and gradient norm are means over `smooth` steps, by default a fiftieth of a run, before the faint
    values themselves.
    """
    runs = [run.by_epoch() for run in runs] if by == EPOCH else runs
    steps = np.concatenate([curve.steps for run in runs for curve in (run.loss, run.validation)])
    low, high = float(steps.min()), float(steps.max())
    low = low if by == STEP else 0.0
    across = Axis(f"{by}s", low, high) if high > low else Axis(f"{by}s", low - 0.5, low + 0.5)
    keys = [LegendKey(run.name, i % len(COLORS), i // len(COLORS)) for i, run in enumerate(runs)]
    windows = [smooth or max(1, len(run.loss) // 50) for run in runs]
    both = list(zip(keys, runs, windows, strict=True))
    floors = {
        run.floor: key for key, run in reversed(list(zip(keys, runs, strict=True))) if run.floor is not None
    }
    levels = [
        Series(key, np.array([low, high]), np.full(2, floor), "level", "entropy floor")
        for floor, key in floors.items()
    ]
    loss = [_series(key, run.loss, "faint") for key, run, _ in both]
    loss += [_series(key, run.loss.smooth(window)) for key, run, window in both]
    validation = [_series(key, run.validation, "points") for key, run, _ in both]
    norm = [_series(key, run.grad_norm, "faint") for key, run, _ in both]
    norm += [_series(key, run.grad_norm.smooth(window)) for key, run, window in both]
    rate = [_series(key, run.lr) for key, run, _ in both]
    loss, validation = [*loss, *levels], [*validation, *levels]
    return [
        Chart("loss", across, _axis("nats per token", loss), loss),
        Chart("validation loss", across, _axis("nats per token", validation), validation),
        Chart("learning rate", across, _axis("", rate), rate),
        Chart("gradient norm", across, _norm_axis(norm), norm),
    ]


def loss_charts(runs: Sequence[RunCurves], smooth: int | None = None, by: str = STEP) -> Iterator[Chart]:
    """Yields the smoothed loss of each run alone, over the axes of all of them."""
    chart = curve_charts(runs, smooth, by)[0]
    y = Axis("loss", chart.y.low, chart.y.high)
    for series in chart.series:
        if series.style == "line" and len(series.x):
            yield Chart(series.key.name, chart.x, y, [series])


def _series(key: LegendKey, curve: Curve, style: str = "line") -> Series:
    thin = curve.thin(POINTS)
    return Series(key, thin.steps, thin.values, style)  # type: ignore[arg-type]


def _values(series: Sequence[Series], *styles: str) -> Array:
    return np.concatenate([np.empty(0), *(one.y for one in series if one.style in styles)])


def _norm_axis(series: Sequence[Series]) -> Axis:
    """Returns a logarithmic axis where the norms go over orders of magnitude."""
    values = _values(series, "line", "faint")
    if len(values) and values.min() > 0 and values.max() > 20 * values.min():
        return Axis("", float(values.min()), float(values.max()), is_log=True)
    return _axis("", series)


def _axis(label: str, series: Sequence[Series]) -> Axis:
    """Returns an axis that neither single steps nor a few values squeeze."""
    values = _values(series, "line", "points", "level")
    if not len(values):
        return Axis(label, 0.0, 1.0)
    low, high, usual = float(values.min()), float(values.max()), float(np.quantile(values, 0.98))
    if high - low > 100 * (usual - low) > 0:
        high = low + 2 * (usual - low)
    if high - low < 1e-9 * abs(high):  # rounding errors of a mean are nothing to look at
        low = high
    more = (high - low) * 0.03 or abs(high) * 0.05 or 0.5
    return Axis(label, max(low - more, 0.0) if low >= 0 else low - more, high + more)

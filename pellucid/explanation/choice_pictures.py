"""Pictures of a choice: its own tables as heatmaps and curves.

Nothing is computed here: masks, rows, angles and biases are the part's own, curves the operation's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from pellucid.parts.caps import CapConfig
from pellucid.parts.masks import MaskConfig
from pellucid.parts.mlps import MlpConfig
from pellucid.parts.positions import PositionsConfig, Table
from pellucid.parts.positions.rope import Rope
from pellucid.parts.schedules import ScheduleConfig
from pellucid.reference.layers import apply_cap
from pellucid.reference.ops import find_op
from pellucid.reference.tape import Tape
from pellucid.report.chart import Axis, Chart, Heatmap, LegendKey, Series
from pellucid.report.figure import Figure, Section

POSITIONS, HEADS, D_HEAD, D_MODEL = 16, 8, 64, 64
LARGEST_SIZE = 3
"""Of a mask's window, block, stride or prefix in its picture."""
FAR = 128
LONG = 32_768
STEPS = 1000
CELL, CHART_SIZE = 7, (340, 200)
"""Pixels of a heatmap's cell, and of a chart."""


def pictures(value: Any) -> Iterator[Chart | Heatmap]:
    """Yields the plots that help to see a choice: none, one or two."""
    if isinstance(value, MaskConfig):
        yield _mask(value)
    elif isinstance(value, PositionsConfig):
        yield from _positions(value)
    elif isinstance(value, MlpConfig) and not value.is_none:
        x = np.linspace(-4, 4, 161)
        y = find_op(value.activation).forward(x)
        yield _chart("activation curve", "x", x, Axis("y", -1, 4), {value.activation: y})
    elif isinstance(value, CapConfig) and not value.is_none:
        tape, x = Tape(), np.linspace(-200, 200, 161)
        y = tape[apply_cap(tape, "capped", tape.constant("scores", x), value)]
        yield _chart("capped score", "before", x, "after", {value.kind: y})
    elif isinstance(value, ScheduleConfig):
        yield _schedule(replace(value, warmup=STEPS // 10))


def _chart(
    title: str, x_label: str, x: Table, y: Axis | str, curves: dict[str, Table], is_log: bool = False
) -> Chart:
    """Returns the curves by name over x; without a y axis, over the range of all of them."""
    x = np.asarray(x, np.float64)
    if isinstance(y, str):
        values = np.concatenate([np.asarray(curve, np.float64) for curve in curves.values()])
        y = Axis(y, float(np.nanmin(values)), float(np.nanmax(values)), is_log)
    series = [
        Series(LegendKey(name, i, i % 2), x, np.asarray(curve, np.float64))
        for i, (name, curve) in enumerate(curves.items())
    ]
    return Chart(title, Axis(x_label, float(x[0]), float(x[-1])), y, series)


def _mask(mask: MaskConfig) -> Heatmap:
    """Returns the mask of a few positions, with sizes small enough to show on them."""
    small = replace(mask, **{name: min(size, LARGEST_SIZE) for name, size in asdict(mask).items()})
    positions = np.arange(POSITIONS)
    is_visible = small.compute_mask(positions, positions)
    cells = np.ones((POSITIONS, POSITIONS)) if is_visible is None else is_visible.astype(float)
    settings = ", ".join(f"{name} = {size}" for name, size in asdict(small).items())
    return Heatmap(
        "visible keys of each query", Axis("key", 0, POSITIONS), "query", cells, "mask", subtitle=settings
    )


def _schedule(part: ScheduleConfig) -> Chart:
    step = np.arange(0, STEPS + STEPS // 10, 5)
    factors = np.array([part.factor(int(at), STEPS) for at in step])
    title = f"learning rate by step, {part.warmup} warm-up steps of {STEPS}"
    return _chart(title, "step", step, Axis("fraction of the peak", 0, 1), {part.kind: factors})


def _positions(part: PositionsConfig) -> Iterator[Chart | Heatmap]:
    rows = part.rows(np.arange(2 * POSITIONS), D_MODEL)
    if rows is not None:
        channels = Axis("channel", 0, D_MODEL)
        yield Heatmap("rows added to the embedding", channels, "position", rows, "signed")
    if (rates := _rates(part)) is not None:
        pair, plain = np.arange(len(rates)), _rates(Rope())
        curves = {part.kind: rates}
        yield _chart("rotation per position", "channel pair", pair, "radians", curves, is_log=True)
        if plain is not None and not np.allclose(rates, plain, equal_nan=True):
            ratio = {part.kind: rates / plain}
            yield _chart("rotation relative to rope", "channel pair", pair, "rope = 1", ratio, is_log=True)
    distances = np.arange(-FAR, FAR + 1)
    if (bias := part.bias(distances[FAR:], HEADS)) is not None:
        curves = {f"{part.kind}, head {head}": row for head, row in enumerate(bias)}
        yield _chart(f"bias of {HEADS} heads by distance", "distance", distances[FAR:], "bias", curves)
    if (ids := part.bias_ids(distances)) is not None:
        label = "distance (below 0: later)"
        yield _chart("learned bias by distance", label, distances, "row of the table", {part.kind: ids})


def _rates(part: PositionsConfig) -> Table | None:
    """Returns each channel pair's rotation per position in a sequence of `LONG`, NaN for pairs that stay."""
    rotation = part.rotation(np.arange(LONG), D_HEAD)
    if rotation is None:
        return None
    rates = np.full(D_HEAD // 2, np.nan)
    rates[: rotation.angles.shape[-1]] = rotation.angles[-1] / (LONG - 1)
    return np.where(rates > 0, rates, np.nan)


def family_figure(family: str, plots: Sequence[tuple[str, str, Chart | Heatmap]]) -> Figure:
    """Returns the plots of one title of a family's kinds (each with its kind and settings) in one figure:
    heatmaps side by side, or all curves over the same axes."""
    _, _, first = plots[0]
    title = f"{family}: {first.title}"
    if isinstance(first, Heatmap):
        maps = [(kind, settings, plot) for kind, settings, plot in plots if isinstance(plot, Heatmap)]
        tiles = [
            replace(plot, title=kind, subtitle=plot.subtitle or settings) for kind, settings, plot in maps
        ]
        note = f"{first.y_label} downwards, {first.x.label} to the right, both from 0"
        note += "; blue: visible" if first.scale == "mask" else "; brown is −1, white 0, blue 1"
        height, width = first.values.shape
        return Figure(title, [Section(title, tiles, (CELL * width, CELL * height))], note)
    charts = [plot for _, _, plot in plots if isinstance(plot, Chart)]
    curves = {series.key.name: series.y for chart in charts for series in chart.series}
    low, high = min(chart.y.low for chart in charts), max(chart.y.high for chart in charts)
    x = charts[0].series[0].x
    chart = _chart("", first.x.label, x, replace(first.y, low=low, high=high), curves)
    return Figure(title, [Section(title, [chart], CHART_SIZE)])

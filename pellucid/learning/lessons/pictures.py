"""Pictures of runs: every number that is drawn is read from a trace.

    grid = draw_grid(trace, "blocks.0.attn.pattern")
    graph = draw_graph(trace, ["embedded[t=1]", "blocks.0.attn.q[t=1]", "blocks.0.attn.scores[t=1]"], "B")
    bars = draw_bars({"before": (trace, "probs[t=1]"), "after": (trace, "probs@1[t=1]")}, "after B")
    gates = draw_gates(trace, "blocks.0.mlp.up")
    losses = draw_losses({"with the residual": trace, "without": other})
    row = draw_row({"X": (trace, "x"), "LayerNorm(X)": (trace, "out")}, "a row before and after")
    by_row, by_column = draw_norm_axes(trace, "x")
    stack = draw_stack(trace, t=1)

`make_figure("title", grid, graph)` puts them into one figure, with its alternative text.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Literal

import numpy as np

from pellucid.base.errors import AddressError
from pellucid.base.formatting import escape_controls
from pellucid.base.names import IGNORE_INDEX
from pellucid.explanation.address import parse
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Array
from pellucid.reference.ops import find_op
from pellucid.report.chart import Axis, Chart, LegendKey, PointLabel, Series
from pellucid.report.diagram import (
    Bars,
    CellFrame,
    Graph,
    GraphEdge,
    GraphNode,
    Grid,
    NumberLine,
    NumberRow,
    format_value,
)

MOST = 24
"""Numbers of a value that a node of a graph shows, at most."""
HALF = 0.5
"""Axes end at a multiple of this."""

_BLOCK = re.compile(r"blocks\.(\d+)\.")

Cells = tuple[Trace, str]
"""A run, and the address of a part of one of its values."""


class DrawnPart:
    """The part of a value that an address names: its numbers without fixed axes and those of length 1.

    A matrix that is stored transposed is as formulas have it.
    """

    def __init__(self, trace: Trace, address: str) -> None:
        self.trace, self.at = trace, parse(trace, address)
        self.name = trace.about(self.at.name)
        sizes = trace.value(self.at.name).shape
        places = tuple(
            0 if size == 1 and i is None else i for size, i in zip(sizes, self.at.index, strict=True)
        )
        self.index = tuple(slice(None) if i is None else i for i in places)
        self.axes = [axis for axis, i in zip(self.name.axes, places, strict=True) if i is None]
        self.is_transposed = self.name.transposed and len(self.axes) == 2
        if self.is_transposed:
            self.axes.reverse()

    @property
    def values(self) -> Array:
        return self.read(self.at.name)

    @property
    def gradient(self) -> Array | None:
        """The gradient of the part; None where the trace has none."""
        base, at, update = self.at.name.partition("@")
        name = f"d.{base}{at}{update}"
        return self.read(name) if name in self.trace.tape else None

    @property
    def symbol(self) -> str:
        """The symbol of the value, with the indices that the address fixes."""
        sizes = self.trace.value(self.at.name).shape
        fixed = [str(i) for i, size in zip(self.at.index, sizes, strict=True) if i is not None and size > 1]
        return f"{self.name.symbol}[{','.join(fixed)}]" if fixed else self.name.symbol

    def read(self, name: str) -> Array:
        """Returns the same part of another value of the same shape."""
        found = np.asarray(self.trace.value(name)[self.index], np.float64)
        return found.T if self.is_transposed else found

    def labels(self, axis: str) -> list[str]:
        """Returns the token at each index of an axis, or c=0 where the axis has none."""
        size = self.trace.size(self.at.name, axis)
        texts = self.trace.texts(self.at.name, axis, self.at.index)
        return [
            escape_controls(text, keep="") if text else f"{axis}={i}"
            for text, i in zip(texts, range(size), strict=True)
        ]


def draw_grid(
    trace: Trace, address: str, title: str = "", scale: Literal["share", "signed", "none"] | None = None
) -> Grid:
    """Returns a pattern or a matrix with the number in each cell; what the attention mask forbids is hatched.

    `scale`: by default shares of a pattern and of probabilities from 0 to 1, other numbers by their sign.
    """
    part = DrawnPart(trace, address)
    if len(part.axes) != 2:
        given = ", ".join(part.axes) or "none"
        raise AddressError(
            f"{address} is not a matrix: it has the axes {given}; fix an index of each axis but two."
        )
    rows, columns = part.axes
    masked = None
    if (rows, columns) == ("t", "s") and "mask" in trace.tape:
        mask = trace.value("mask")
        b = dict(zip(part.name.axes, part.at.index, strict=True)).get("b") or 0
        masked = (mask[b if mask.shape[0] > 1 else 0, 0] == 0).astype(np.float64)
    is_share = part.at.name.partition("@")[0].endswith(("pattern", "probs"))
    return Grid(
        title or f"{part.symbol}: {part.name.term}",
        part.values,
        part.labels(rows),
        part.labels(columns),
        AXIS_WORDS.get(rows, rows),
        AXIS_WORDS.get(columns, columns),
        scale or ("share" if is_share else "signed"),
        masked,
    )


AXIS_WORDS = {"t": "query", "s": "key", "v": "token", "c": "channel", "b": "prompt"}
"""What an axis of a grid is called beside it; another is called by its letter."""


def draw_graph(
    trace: Trace,
    addresses: Sequence[str],
    title: str,
    direction: Literal["right", "down"] = "down",
    gradients: bool = True,
) -> Graph:
    """Returns these values with what they are computed from among them, also through steps between; below
    each value stands its gradient, where the trace has one and `gradients` is true."""
    parts = {address: DrawnPart(trace, address) for address in addresses}
    nodes = [_make_node(address, part, gradients) for address, part in parts.items()]
    if len({_find_block(node.name) for node in nodes} - {""}) > 1:
        nodes = [replace(node, symbol=f"{node.symbol}{_find_block(node.name)}") for node in nodes]
    names = {part.at.name for part in parts.values()}
    edges = [
        GraphEdge(source, target)
        for target, part in parts.items()
        for name in _find_sources(trace, part.at.name, names)
        for source, other in parts.items()
        if other.at.name == name
    ]
    return Graph(title, nodes, edges, direction)


def _find_block(name: str) -> str:
    """Returns the words for the block of a value; none where it is in none."""
    found = _BLOCK.match(name)
    return f" of block {found[1]}" if found else ""


def _make_node(address: str, part: DrawnPart, has_gradient: bool) -> GraphNode:
    is_small = part.values.size <= MOST
    gradient = part.gradient if has_gradient and is_small else None
    is_given = part.at.name not in part.trace.tape.steps
    return GraphNode(address, part.symbol, part.values if is_small else None, gradient, is_given)


def _find_sources(trace: Trace, name: str, names: set[str]) -> list[str]:
    """Returns which of these values a value is computed from, directly or through values that are not among
    them."""
    found, seen, waiting = list[str](), {name}, [name]
    while waiting:
        step = trace.tape.steps.get(waiting.pop())
        for read in step.inputs if step else ():
            if read not in seen:
                seen.add(read)
                (found if read in names else waiting).append(read)
    return found


def draw_stack(trace: Trace, t: int, title: str = "") -> Graph:
    """Returns the residual stream at one position, from the embedding through the blocks to the
    probabilities, with what each sub-layer adds."""
    per_block = ("attn_out", "resid_mid", "mlp_out", "resid_post")
    blocks = (f"blocks.{i}.{name}" for i in count() for name in per_block)
    names = ["positioned"]
    for name in blocks:
        if f"{name.rpartition('.')[0]}.attn_out" not in trace.tape:
            break
        names.append(name)
    names += ["final_norm.out", "logits", "probs"]
    resolved = dict.fromkeys(trace.tape.resolve(name) for name in names if name in trace.tape)
    token = (trace.texts("probs", "t") or [""])[t]
    return draw_graph(
        trace, [f"{name}[t={t}]" for name in resolved], title or f"position {t} ({token})", gradients=False
    )


def draw_bars(
    groups: Mapping[str, Cells], title: str, axis_label: str = "", limits: tuple[float, float] | None = None
) -> Bars:
    """Returns the bars of one row each, beside each other: {"before": (trace, "probs[t=1]"), …}."""
    parts = {name: DrawnPart(*cells) for name, cells in groups.items()}
    first = next(iter(parts.values()))
    if len(first.axes) != 1 or any(part.axes != first.axes for part in parts.values()):
        raise AddressError(
            "each group of bars is one row over the same axis: fix an index of each axis but one."
        )
    values = {name: part.values for name, part in parts.items()}
    is_share = all(part.at.name.partition("@")[0].endswith(("pattern", "probs")) for part in parts.values())
    limits = limits or ((0.0, 1.0) if is_share else None)
    return Bars(title, first.labels(first.axes[0]), values, axis_label, limits)


def draw_gates(trace: Trace, address: str, title: str = "", activation: str = "relu") -> Chart:
    """Returns the curve of the activation with each pre-activation on it: a disk where the gate is open, a
    ring where it is closed."""
    part = DrawnPart(trace, address)
    u = part.values
    function = find_op(activation).forward
    most = _end_axis(float(np.abs(u).max()))
    x = np.linspace(-most, most, 201)
    marks = [
        PointLabel(
            float(u[at]),
            float(function(u[at])),
            _name_cell(part, at, float(function(u[at]))),
            bool(u[at] <= 0),
        )
        for at in np.ndindex(u.shape)
    ]
    y = Axis(f"{activation}(u)", -0.25 * most, most)
    return Chart(
        title or f"{part.symbol} at its gates",
        Axis("pre-activation u", -most, most),
        y,
        [Series(LegendKey(""), x, function(x))],
        marks,
    )


def _end_axis(value: float) -> float:
    """Returns the next multiple of `HALF` above a value."""
    return HALF * (math.floor(value / HALF) + 1)


def _name_cell(part: DrawnPart, at: tuple[int, ...], after: float) -> str:
    """Returns the labels of a cell, and what the gate passes on."""
    places = [part.labels(axis)[i] for axis, i in zip(part.axes, at, strict=True)]
    return f"{' '.join(places)}: {'closed' if after <= 0 else format_value(after, 4)}"


def draw_losses(
    runs: Mapping[str, Trace], title: str = "loss over updates", most: float | None = None
) -> Chart:
    """Returns the loss after each update of one run or several.

    Where a run alone counts its right predictions (`right@k`), the points where the number changes say it.
    `most`: the largest loss that is shown.
    """
    losses = {name: read_losses(trace) for name, trace in runs.items()}
    last = max(len(loss) for loss in losses.values()) - 1
    high = most or _end_axis(max(float(loss.max()) for loss in losses.values()))
    series = [
        Series(
            LegendKey(name, i, i),
            np.arange(len(loss), dtype=np.float64),
            loss,
            "points" if last <= 20 else "line",
        )
        for i, (name, loss) in enumerate(losses.items())
    ]
    marks = list(_mark_right(next(iter(runs.values())), high)) if len(runs) == 1 else []
    return Chart(
        title, Axis("update", 0, max(last, 1), is_whole=True), Axis("loss, nats", 0, high), series, marks
    )


def read_losses(trace: Trace) -> Array:
    """Returns the loss after each update, the first before any."""
    names = [f"loss@{k}" for k in range(len(trace.tape.values)) if f"loss@{k}" in trace.tape]
    return np.array([float(trace.value(name)) for name in names])


def _mark_right(trace: Trace, high: float) -> Iterator[PointLabel]:
    """Yields a mark at each update after which another number of targets is predicted."""
    if "right@0" not in trace.tape:
        return
    losses, before = read_losses(trace), -1
    targets = int(np.sum(trace.value("targets") != IGNORE_INDEX))
    for k, loss in enumerate(losses):
        right = int(trace.value(f"right@{k}"))
        if right != before:
            yield PointLabel(k, min(float(loss), high), f"{right} of {targets} right")
        before = right


def draw_row(rows: Mapping[str, Cells], title: str, label: str = "value") -> NumberLine:
    """Returns rows on one number line, each with its mean: {"X": (trace, "x[t=0]"), …}."""
    values = {name: np.ravel(DrawnPart(*cells).values) for name, cells in rows.items()}
    everything = np.concatenate(list(values.values()))
    low, high = -_end_axis(-float(everything.min())), _end_axis(float(everything.max()))
    shown = [NumberRow(name, row, mean=float(row.mean())) for name, row in values.items()]
    return NumberLine(title, Axis(label, low, high), shown)


def draw_norm_axes(trace: Trace, address: str) -> tuple[Grid, Grid]:
    """Returns a matrix of rows and channels twice: framed as LayerNorm averages, and as BatchNorm does."""
    part = DrawnPart(trace, address)
    if len(part.axes) != 2:
        raise AddressError(f"{address} is not a matrix of rows and channels: it has {len(part.axes)} axes.")
    rows, columns = part.values.shape
    first, second = part.axes
    names = part.labels(first), part.labels(second)
    words = "row", AXIS_WORDS.get(second, second)
    by_row = [CellFrame((i, i + 1), (0, columns)) for i in range(rows)]
    by_column = [CellFrame((0, rows), (j, j + 1)) for j in range(columns)]

    def frame(title: str, frames: Sequence[CellFrame]) -> Grid:
        return Grid(title, part.values, *names, *words, scale="none", frames=frames)

    return frame("LayerNorm: each row by itself", by_row), frame(
        "BatchNorm: each channel by itself", by_column
    )

"""The picture of `pellucid plot`: four panels and, below them, the maps of what the recorder kept; as SVG or
PNG. `plot_page` makes a page of them."""

import importlib
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from pellucid.cli import plot_layers
from pellucid.errors import UsageError
from pellucid.figures.ticks import ticks
from pellucid.training.history.curves import Array, Curve, RunCurves
from pellucid.training.history.layers import Map

INK, FAINT, PAPER, RULE = "#1f2933", "#5f6c7b", "#ffffff", "#d5dbe3"
COLOURS = ("#2b6cb0", "#d9480f", "#2f855a", "#9b2c86", "#b7791f", "#4a5568", "#5a4fcf", "#c53030")
DASHES = ("none", "7 3", "2 3")
MARGIN, WIDE, HIGH = 16, 300, 160
LEFT, RIGHT, ABOVE, BELOW = 70, 10, 26, 42
"""Around the axes of a panel or a map: its numbers, its title."""
TILE_WIDE, TILE_HIGH = LEFT + WIDE + RIGHT, ABOVE + HIGH + BELOW
"""A panel is as wide as a telephone, on which its letters then have the sizes given here, 11 or more."""
WIDTH, ZOOM = 2 * (MARGIN + TILE_WIDE), 1.3
LONGEST, LETTER = 90, 7.5
"""Letters of a run's name, at most, and the pixels of each, about."""
MARKS = {
    ".svg": b'data-generator="pellucid plot"',
    ".html": b'<meta name="generator" content="pellucid plot">',
    ".png": b"Software\0pellucid plot",
}
"""By which a picture is known as ours; of a .png, a text chunk."""
Layers = Sequence[Sequence[Map]]
"""The recorder's maps of each run."""
POINTS = 800
"""Points of a curve in a picture; more than one per pixel cannot be seen."""


@dataclass(frozen=True)
class Line:
    """One curve of one run: a line, a faint one, points, or an entropy floor."""

    run: int
    style: str
    curve: Curve


@dataclass(frozen=True)
class Panel:
    """Curves over steps on the same axes."""

    title: str
    key: str
    ends: tuple[float, float]
    unit: str = ""
    lines: list[Line] = field(default_factory=list)

    def across(self) -> tuple[float, float]:
        """The first and the last step, the same in all panels."""
        low, high = self.ends
        return (low, high) if high > low else (low - 0.5, low + 0.5)

    def up(self) -> tuple[float, float]:
        """The lowest and the highest value shown; neither single steps nor a few values squeeze the rest."""
        values = self._values("line", "points", "floor")
        if self.log:
            values = self._values("line", "faint")
            return float(values.min()), float(values.max())
        if not len(values):
            return 0.0, 1.0
        low, high, usual = float(values.min()), float(values.max()), float(np.quantile(values, 0.98))
        if high - low > 100 * (usual - low) > 0:
            high = low + 2 * (usual - low)
        if high - low < 1e-9 * abs(high):  # rounding errors of a mean are nothing to look at
            low = high
        more = (high - low) * 0.03 or abs(high) * 0.05 or 0.5
        return max(low - more, 0.0) if low >= 0 else low - more, high + more

    @property
    def log(self) -> bool:
        """Norms go over orders of magnitude."""
        values = self._values("line", "faint")
        wide = len(values) > 0 and values.min() > 0 and values.max() > 20 * values.min()
        return self.key == "grad_norm" and bool(wide)

    def _values(self, *styles: str) -> Array:
        """The values of all lines of some styles together."""
        return np.concatenate(
            [np.empty(0), *(line.curve.values for line in self.lines if line.style in styles)]
        )

    def place(self, values: Array) -> Array:
        """Where values are between the bottom, 0, and the top, 1."""
        low, high = self.up()
        if self.log:
            low, high, values = math.log10(low), math.log10(high), np.log10(values)
        return (values - low) / (high - low)


def panels(runs: Sequence[RunCurves], smooth: int | None = None) -> list[Panel]:
    """Loss, validation, learning rate and gradient norm of all runs, thinned to what a picture can show."""
    steps = np.concatenate([curve.steps for run in runs for curve in (run.loss, run.validation)])
    ends = float(steps.min()), float(steps.max())
    loss = Panel("loss", "loss", ends, "nats per token")
    validation = Panel("validation loss", "validation", ends, "nats per token")
    rate, norm = Panel("learning rate", "lr", ends), Panel("gradient norm", "grad_norm", ends)
    for i, run in enumerate(runs):
        window = smooth or max(1, len(run.loss) // 50)
        loss.lines.append(Line(i, "faint", run.loss.thin(POINTS)))
        loss.lines.append(Line(i, "line", run.loss.smooth(window).thin(POINTS)))
        validation.lines.append(Line(i, "points", run.validation.thin(POINTS)))
        rate.lines.append(Line(i, "line", run.lr.thin(POINTS)))
        norm.lines.append(Line(i, "faint", run.grad_norm.thin(POINTS)))
        norm.lines.append(Line(i, "line", run.grad_norm.smooth(window).thin(POINTS)))
    floors = {run.floor: i for i, run in reversed(list(enumerate(runs))) if run.floor is not None}
    for panel in (loss, validation):
        panel.lines.extend(
            Line(i, "floor", Curve(np.array(ends), np.full(2, floor))) for floor, i in floors.items()
        )
    found = [loss, validation, rate, norm]
    for panel in found:  # faint lines below the others
        panel.lines.sort(key=lambda line: line.style != "faint")
    return found


# ---- SVG


def svg(drawn: Sequence[Panel], names: Sequence[str], layers: Layers = ()) -> bytes:
    return _svg(drawn, names, layers).encode()


def _svg(drawn: Sequence[Panel], names: Sequence[str], layers: Layers) -> str:
    """Two panels in a row; above them which colour is which run."""
    below = _top(names) + 2 * TILE_HIGH
    width, height = WIDTH, below + plot_layers.height(layers) + MARGIN
    marks = [mark for i, name in enumerate(names) for mark in _legend(i, name, names)]
    for i, panel in enumerate(drawn):
        marks += panel_marks(panel, i, *_corner(i, names))
    if layers:
        place = (MARGIN + LEFT, WIDE, TILE_WIDE)
        marks += plot_layers.marks(layers, names, drawn[0].across(), below, place)
    paper = f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6" fill="{PAPER}" '
    return "\n".join(
        (
            f'{svg_tag(width, height)[:-1]} width="{ZOOM * width:g}" height="{ZOOM * height:g}" '
            f"{MARKS['.svg'].decode()}>",
            f"<title>{escape(', '.join(names))}</title>",
            f'{paper}stroke="{RULE}"/>',
            *marks,
            "</svg>\n",
        )
    )


def svg_tag(width: float, height: float) -> str:
    """The beginning of a picture of this size in the letters and the ink of all."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'font-family="DejaVu Sans, Verdana, sans-serif" font-size="12" fill="{INK}">'
    )


def _columns(names: Sequence[str]) -> int:
    """In how many columns the names of the runs fit."""
    return max(1, min(len(names), (WIDTH - 2 * MARGIN) // _wide(names)))


def _wide(names: Sequence[str]) -> int:
    """Pixels for a name and its line."""
    return 50 + round(LETTER * min(max(map(len, names)), LONGEST))


def _top(names: Sequence[str]) -> int:
    """Where the panels begin: below the names."""
    return MARGIN + 20 * -(-len(names) // _columns(names)) + 8


def _corner(i: int, names: Sequence[str]) -> tuple[int, int]:
    """The upper left corner of a panel's axes."""
    return MARGIN + LEFT + i % 2 * TILE_WIDE, _top(names) + ABOVE + i // 2 * TILE_HIGH


def stroke(run: int) -> str:
    dash = DASHES[run // len(COLOURS) % len(DASHES)]
    return f'stroke="{COLOURS[run % len(COLOURS)]}" stroke-dasharray="{dash}"'


def _legend(run: int, name: str, names: Sequence[str]) -> Iterator[str]:
    row, column = divmod(run, _columns(names))
    x, y = MARGIN + column * _wide(names), MARGIN + 8 + 20 * row
    yield f'<path fill="none" {stroke(run)} stroke-width="2" d="M{x} {y}h22"/>'
    yield _text(x + 30, y + 4, name if len(name) <= LONGEST else f"…{name[1 - LONGEST :]}")


def panel_marks(panel: Panel, number: int, left: int, top: int) -> Iterator[str]:
    """A panel whose axes begin at this upper left corner; no other of the page has its number."""
    yield _text(left, top - 9, panel.title, 'font-weight="bold"')
    yield _text(left + WIDE, top - 9, panel.unit, f'text-anchor="end" font-size="11" fill="{FAINT}"')
    yield _text(left + WIDE, top + HIGH + 32, "steps", f'text-anchor="end" font-size="11" fill="{FAINT}"')
    yield f'<rect x="{left}" y="{top}" width="{WIDE}" height="{HIGH}" fill="none" stroke="{RULE}"/>'
    for text, place in ticks(*panel.up(), panel.log):
        y = round(top + HIGH * (1 - place), 1)
        yield f'<path stroke="{RULE}" d="M{left} {y:g}h{WIDE}"/>'
        yield _text(left - 6, y + 4, text, f'text-anchor="end" font-size="11" fill="{FAINT}"')
    for text, place in ticks(*panel.across(), log=False, most=5 if panel.ends[1] < 1e4 else 3):
        x = round(left + WIDE * place, 1)
        yield f'<path stroke="{RULE}" d="M{x:g} {top}v{HIGH}"/>'
        anchor = "end" if place > 0.97 else "middle"  # a long number would leave the picture
        yield _text(x, top + HIGH + 16, text, f'text-anchor="{anchor}" font-size="11" fill="{FAINT}"')
    inside = f'<rect x="{left}" y="{top}" width="{WIDE}" height="{HIGH}"/>'
    yield f'<clipPath id="panel{number}">{inside}</clipPath>'
    yield f'<g clip-path="url(#panel{number})" fill="none" stroke-linejoin="round">'
    for line in panel.lines:
        yield from _line(panel, line, left, top)
    yield "</g>"
    if not any(len(line.curve) for line in panel.lines):
        middle = f'text-anchor="middle" fill="{FAINT}"'
        yield _text(left + WIDE / 2, top + HIGH / 2, "nothing in the log", middle)


def _line(panel: Panel, line: Line, left: int, top: int) -> Iterator[str]:
    first, last = panel.across()
    x = left + WIDE * (line.curve.steps - first) / (last - first)
    y = np.clip(top + HIGH * (1 - panel.place(line.curve.values)), top - 2 * HIGH, top + 3 * HIGH)
    points = [f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True)]
    colour = COLOURS[line.run % len(COLOURS)]
    if line.style == "floor":
        dotted = f'stroke="{colour}" stroke-dasharray="1 4" stroke-width="2"'
        yield f'<path {dotted} d="M{left} {y[0]:.1f}h{WIDE}"/>'
        if y[0] < top + HIGH:
            around = f'stroke="{PAPER}" stroke-width="3" paint-order="stroke"'  # other lines may pass there
            yield _text(left + 6, y[0] - 5, "entropy floor", f'fill="{colour}" {around} font-size="11"')
        return
    look = 'stroke-width="1" opacity="0.3"' if line.style == "faint" else 'stroke-width="2"'
    yield f'<polyline {stroke(line.run)} {look} points="{" ".join(points)}"/>'
    if line.style == "points" or len(points) == 1:
        dots = "".join(f"M{point.replace(',', ' ')}h0" for point in points[:200])
        yield f'<path stroke="{colour}" stroke-width="5" stroke-linecap="round" d="{dots}"/>'


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(text)}</text>'.replace(" >", ">")


# ---- PNG


def png(drawn: Sequence[Panel], names: Sequence[str], layers: Layers = ()) -> bytes:
    """The same panels and maps by matplotlib."""
    try:
        figure_of = importlib.import_module("matplotlib.figure").Figure
    except ImportError:
        raise UsageError(
            "a .png needs matplotlib: pip install 'pellucid[plot]'. -o curves.html and .svg need nothing."
        ) from None
    maps = [(drawn_map, name) for some, name in zip(layers, names, strict=False) for drawn_map in some]
    rows = 2 + math.ceil(len(maps) / 2)
    high = 3.5 * rows + 0.2 * (len(names) // _columns(names))
    figure = figure_of(figsize=(11, high), dpi=130, layout="constrained")
    looks: dict[str, dict[str, Any]] = {
        "faint": {"alpha": 0.3, "linewidth": 0.8},
        "line": {"linewidth": 1.8},
        "points": {"linewidth": 1.8, "marker": ".", "markersize": 6},
        "floor": {"linewidth": 1.5, "linestyle": ":"},
    }
    places = list(figure.subplots(rows, 2).flat)
    for (drawn_map, name), axes in zip(maps, places[4:], strict=False):
        plot_layers.paint(axes, drawn_map, drawn[0].across(), name if len(names) > 1 else "")
    for panel, axes in zip(drawn, places[:4], strict=True):
        for line in panel.lines:
            axes.plot(line.curve.steps, line.curve.values, **_pen(line.run) | looks[line.style])
        for line in panel.lines:
            if line.style == "floor":
                here = (line.curve.steps[0], line.curve.values[0])
                offset = {"xytext": (4, 3), "textcoords": "offset points"}
                axes.annotate(
                    "entropy floor", here, color=COLOURS[line.run % len(COLOURS)], fontsize=8, **offset
                )
        if panel.log:
            axes.set_yscale("log")
        else:
            axes.ticklabel_format(axis="y", scilimits=(-3, 5))
        axes.set(ylim=panel.up(), xlim=panel.across(), title=panel.title, xlabel="steps", ylabel=panel.unit)
        axes.grid(color=RULE)
    marks = [axes.plot([], [], **_pen(i))[0] for i in range(len(names))]
    shown = [name.replace("$", r"\$") for name in names]
    figure.legend(marks, shown, loc="outside upper left", ncols=_columns(names), frameon=False)
    file = io.BytesIO()
    key, _, value = MARKS[".png"].decode().partition("\0")
    figure.savefig(file, format="png", metadata={key: value})
    return file.getvalue()


def _pen(run: int) -> dict[str, Any]:
    dash = ("-", "--", ":")[run // len(COLOURS) % len(DASHES)]
    return {"color": COLOURS[run % len(COLOURS)], "linestyle": dash}

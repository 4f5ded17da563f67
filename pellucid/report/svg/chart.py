"""A chart as SVG: axes with their ticks, the series inside of them, and the labelled points."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pellucid.report.chart import Axis, Chart, Series
from pellucid.report.svg.marks import (
    COLORS,
    FAINT,
    HALO,
    INK,
    RULE,
    SMALL,
    Tile,
    dot,
    line,
    stroke,
    text,
    text_width,
)


def chart_tile(chart: Chart, size: tuple[int, int]) -> Tile:
    """Returns the room for ticks and labels around axes of this size."""
    return Tile(70, 10, 26, 42, *size)


def axes_marks(title: str, x: Axis, y: Axis, size: Tile, left: int, top: int) -> Iterator[str]:
    """Yields a title, and the frame of a plot with the ticks and the labels of its axes."""
    right, bottom = left + size.width, top + size.height
    yield text(left, top - 9, title, 'font-weight="bold"')
    yield text(right, top - 9, y.label, f'text-anchor="end" {SMALL}')
    yield text(right, bottom + 32, x.label, f'text-anchor="end" {SMALL}')
    frame = f'<rect x="{left}" y="{top}" width="{size.width}" height="{size.height}"'
    yield f'{frame} fill="none" stroke="{RULE}"/>'
    for words, place in y.ticks():
        level = round(bottom - size.height * place, 1)
        yield f'<path stroke="{RULE}" d="M{left} {level:g}h{size.width}"/>'
        yield text(left - 6, level + 4, words, f'text-anchor="end" {SMALL}')
    for words, place in x.ticks(most=5 if x.high < 1e4 else 3):
        across = round(left + size.width * place, 1)
        yield f'<path stroke="{RULE}" d="M{across:g} {top}v{size.height}"/>'
        anchor = "end" if place > 0.97 else "middle"  # a long number would leave the picture
        yield text(across, bottom + 16, words, f'text-anchor="{anchor}" {SMALL}')


def chart_marks(chart: Chart, id: str, size: Tile, left: int, top: int) -> Iterator[str]:
    right, bottom = left + size.width, top + size.height
    yield from axes_marks(chart.title, chart.x, chart.y, size, left, top)
    inside = (
        f'x="{left - 1}" y="{top - 1}" width="{size.width + 2}" height="{size.height + 2}"'  # whole strokes
    )
    yield f'<clipPath id="{id}"><rect {inside}/></clipPath>'
    yield f'<g clip-path="url(#{id})" fill="none" stroke-linejoin="round">'
    for series in chart.series:
        yield from _series(chart, series, size, left, top)
    yield "</g>"
    yield from _points(chart, size, left, top)
    if not chart.marks and not any(len(series.x) for series in chart.series):
        middle = f'text-anchor="middle" fill="{FAINT}"'
        yield text((left + right) / 2, (top + bottom) / 2, "no data", middle)


def _series(chart: Chart, series: Series, size: Tile, left: int, top: int) -> Iterator[str]:
    here = np.isfinite(series.y)
    x = left + size.width * chart.x.place(series.x[here])
    y = top + size.height * np.clip(1 - chart.y.place(series.y[here]), -2, 3)
    if not len(x):
        return
    hue = COLORS[series.key.color % len(COLORS)]
    if series.style == "level":
        dotted = f'stroke="{hue}" stroke-dasharray="1 4" stroke-width="2"'
        yield f'<path {dotted} d="M{left} {y[0]:.1f}h{size.width}"/>'
        if y[0] < top + size.height:
            yield text(left + 6, y[0] - 5, series.label, f'fill="{hue}" {HALO} font-size="11"')
        return
    look = 'stroke-width="1" opacity="0.3"' if series.style == "faint" else 'stroke-width="2"'
    points = [f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True)]
    yield f'<polyline {stroke(series.key)} {look} points="{" ".join(points)}"/>'
    if series.style == "points" or len(points) == 1:
        dots = "".join(f"M{point.replace(',', ' ')}h0" for point in points[:200])
        yield f'<path stroke="{hue}" stroke-width="5" stroke-linecap="round" d="{dots}"/>'


def _points(chart: Chart, size: Tile, left: int, top: int) -> Iterator[str]:
    """Yields the labelled points, each label where it covers no other one."""
    here = [
        mark for mark in chart.marks if 0 <= chart.x.place(mark.x) <= 1 and 0 <= chart.y.place(mark.y) <= 1
    ]
    points = [
        (
            left + size.width * float(chart.x.place(mark.x)),
            top + size.height * (1 - float(chart.y.place(mark.y))),
        )
        for mark in here
    ]
    lines = [point for series in chart.series for point in _samples(chart, series, size, left, top)]
    frame = Area(left, top, left + size.width, top + size.height)
    labels = place_labels([mark.label for mark in here], points, lines, frame)
    for mark, (x, y), label in zip(here, points, labels, strict=True):
        yield dot(x, y, INK, mark.is_open)
        if mark.label and label.distance((x, y)) > FAR:
            yield line(x, y, *label.nearest((x, y)), f'stroke="{FAINT}" stroke-width="0.8"')
        if mark.label:
            yield text(label.left, label.bottom - 3, mark.label, f'font-size="{LABEL}" {HALO}')


def _samples(chart: Chart, series: Series, size: Tile, left: int, top: int) -> Iterator[tuple[float, float]]:
    """Yields points along a line, close to each other, as pixels."""
    here = np.isfinite(series.y)
    if not here.any():
        return
    across = np.linspace(0, 1, 200)
    x, y = chart.x.place(series.x[here]), chart.y.place(series.y[here])
    for a, b in zip(across, np.interp(across, x, y, np.nan, np.nan), strict=True):
        if 0 <= b <= 1:
            yield left + size.width * float(a), top + size.height * (1 - float(b))


LABEL = 11
"""The font size of a label."""
HIGH = 14
"""Pixels of a label's height."""
FAR = 12
"""Pixels from which on a label is joined with its point by a line."""
ROUNDS = 6
"""How many lines above or below its point a label may go."""

Point = tuple[float, float]


class Area(NamedTuple):
    """A rectangle on the page."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "Area") -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def nearest(self, point: Point) -> Point:
        """Returns the point of the area that is nearest to another one."""
        x, y = point
        return min(max(x, self.left), self.right), min(max(y, self.top), self.bottom)

    def distance(self, point: Point) -> float:
        return math.dist(point, self.nearest(point))

    def holds(self, point: Point) -> bool:
        return self.left < point[0] < self.right and self.top < point[1] < self.bottom


def place_labels(
    labels: Sequence[str], points: Sequence[Point], lines: Sequence[Point], room: Area
) -> list[Area]:
    """Returns the place of each label beside its point, within the room, the nearest that is free.

    >>> room = Area(0, 0, 100, 100)
    >>> a, b = place_labels(["one", "two"], [(50, 50), (52, 50)], [], room)
    >>> a.overlaps(b)
    False
    """
    placed: list[Area] = []
    for label, point in zip(labels, points, strict=True):
        dots = [Area(x - 5, y - 5, x + 5, y + 5) for x, y in points]

        def cost(box: Area) -> float:
            others = sum(box.overlaps(other) for other in placed)
            outside = box.left < room.left or box.right > room.right
            outside |= box.top < room.top or box.bottom > room.bottom
            over = sum(map(box.holds, lines)) + 10 * sum(box.overlaps(dot) for dot in dots)  # noqa: B023
            return 10_000 * others + 5_000 * outside + over

        places = list(_find_places(text_width(label, LABEL), point)) if label else [Area(*point, *point)]
        placed.append(min(places, key=cost))  # the first of the cheapest is the nearest
    return placed


def _find_places(width: float, point: Point) -> Iterator[Area]:
    """Yields the places around a point: above, below, right, left, then farther off."""
    x, y = point
    for away in range(ROUNDS):
        for shift in (0.0, 0.5 * width, -0.5 * width):
            left = x - width / 2 + shift
            above = y - 6 - away * HIGH
            yield Area(left, above - HIGH, left + width, above)
            yield Area(left, y + 6 + away * HIGH, left + width, y + 6 + (away + 1) * HIGH)
        if not away:
            yield Area(x + 7, y - HIGH / 2, x + 7 + width, y + HIGH / 2)
            yield Area(x - 7 - width, y - HIGH / 2, x - 7, y + HIGH / 2)

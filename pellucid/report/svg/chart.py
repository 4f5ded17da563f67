"""A chart as SVG: axes with their ticks, the series inside of them, and the labelled points."""

from collections.abc import Iterator

import numpy as np

from pellucid.report.chart import Axis, Chart, Series
from pellucid.report.svg.labels import FAR, LABEL, Area, place_labels
from pellucid.report.svg.marks import COLORS, FAINT, HALO, INK, RULE, SMALL, Tile, dot, line, stroke, text


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

"""The recorder's maps in the picture of `pellucid plot`: a row for each layer, a colour for each size."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from pellucid.training.history.layers import Map

ABOVE, HIGH, BELOW, HEADING, BAR = 24, 130, 36, 34, 60
"""Above a map, of it, below it, and above those of a run; and how long the bar of colours is."""
TILE_HIGH = ABOVE + HIGH + BELOW
COLUMNS = 60
"""Steps of a map in a picture."""
LADDER = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
"""From the smallest figure to the largest: dark blue, green, yellow."""
NONE = "#e8ebef"

Ends = tuple[float, float]


def height(runs: Sequence[Sequence[Map]]) -> int:
    return sum(HEADING + math.ceil(len(maps) / 2) * TILE_HIGH for maps in runs if maps)


def heading(name: str, names: Sequence[str]) -> str:
    """What stands above the maps of a run."""
    return f"layers of {name}" if len(names) > 1 else "layers"


def marks(
    runs: Sequence[Sequence[Map]], names: Sequence[str], across: Ends, top: int, corner: tuple[int, int, int]
) -> Iterator[str]:
    """The maps of each run, two in a row. `corner`: the left end, the width, and how far to the next map."""
    left, wide, step = corner
    for maps, name in zip(runs, names, strict=True):
        if not maps:
            continue
        yield _text(left, top + 16, heading(name, names), 'font-weight="bold"')
        top += HEADING
        for i, drawn in enumerate(maps):
            yield from map_marks(drawn, across, left + i % 2 * step, top + i // 2 * TILE_HIGH, wide)
        top += math.ceil(len(maps) / 2) * TILE_HIGH


def map_marks(whole: Map, across: Ends, left: int, top: int, wide: int) -> Iterator[str]:
    """One map, its title above and what its colours mean below."""
    drawn, top = whole.thin(COLUMNS), top + ABOVE
    yield _text(left, top - 8, drawn.title)
    yield from _bar(drawn, left + wide, top + HIGH + 18)
    edges = left + wide * (edges_of(drawn.steps, across) - across[0]) / (across[1] - across[0])
    tall = HIGH / len(drawn.layers)
    yield '<g shape-rendering="crispEdges">'
    every, ends = math.ceil(len(drawn.layers) / (HIGH / 13)), drawn.ends()
    for row, layer in enumerate(drawn.layers):
        y = top + HIGH - (row + 1) * tall
        if row % every == 0:
            short = layer.removeprefix("block ")
            yield _text(left - 6, y + tall / 2 + 4, short, 'text-anchor="end" font-size="11" fill="#5f6c7b"')
        for (x, end), step, value in zip(pairwise(edges), drawn.steps, drawn.values[row], strict=True):
            told = f"{layer}, step {step:,.0f}: {value:.4g}"
            yield (
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{end - x + 0.4:.1f}" height="{tall + 0.4:.1f}" '
                f'fill="{colour(value, ends)}"><title>{escape(told)}</title></rect>'
            )
    yield "</g>"


def edges_of(steps: Any, across: Ends) -> Any:
    """Where the cells of recorded steps begin and end: in the middle between two of them; the first and the
    last reach as far to both sides, within the picture."""
    middles = (steps[1:] + steps[:-1]) / 2
    if not len(middles):
        return np.array(across)
    ends = 2 * steps[0] - middles[0], 2 * steps[-1] - middles[-1]
    return np.clip(np.concatenate(([ends[0]], middles, [ends[1]])), *across)


def _bar(drawn: Map, right: int, y: int) -> Iterator[str]:
    """What the ends of the colours are, below the right end of a map."""
    low, high = drawn.ends()
    faint = 'font-size="11" fill="#5f6c7b"'
    largest = f"{high:.3g}"
    yield _text(right, y, largest, f'text-anchor="end" {faint}')
    start = right - 7 * len(largest) - 6 - BAR
    for i in range(BAR):
        fill = colour(low * (high / low) ** (i / (BAR - 1)), (low, high))
        yield f'<rect x="{start + i}" y="{y - 9}" width="1.4" height="9" fill="{fill}"/>'
    yield _text(start - 6, y, f"{low:.3g}", f'text-anchor="end" {faint}')


def colour(value: float, ends: Ends) -> str:
    """On the ladder by the logarithm; grey where there is no figure above 0.

    >>> colour(1.0, (1.0, 100.0)), colour(10.0, (1.0, 100.0)), colour(math.nan, (1.0, 100.0))
    ('#440154', '#21918c', '#e8ebef')
    """
    low, high = ends
    if not math.isfinite(value) or value <= 0:
        return NONE
    share = math.log(value / low) / math.log(high / low) if high > low else 0.5
    place = min(max(share, 0.0), 1.0) * (len(LADDER) - 1)
    under = min(int(place), len(LADDER) - 2)
    mixed = (a + (b - a) * (place - under) for a, b in zip(LADDER[under], LADDER[under + 1], strict=True))
    return "#" + "".join(f"{round(part):02x}" for part in mixed)


def paint(axes: Any, drawn: Map, across: Ends, name: str) -> None:
    """One map on the axes of matplotlib, in the same colours."""
    shown = drawn.thin(COLUMNS)
    colours = [[colour(value, shown.ends()) for value in row] for row in shown.values]
    cells = [[[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in row] for row in colours]
    edges, layers = edges_of(shown.steps, across), np.arange(len(shown.layers) + 1)
    axes.pcolormesh(edges, layers, np.array(cells) / 255)
    low, high = shown.ends()
    axes.set(xlim=across, title=f"{name}: {shown.title}, {low:.3g} … {high:.3g}".removeprefix(": "))
    axes.set_yticks(layers[:-1] + 0.5, shown.layers, fontsize=7)


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(text)}</text>'.replace(" >", ">")

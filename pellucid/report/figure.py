"""A figure: charts and diagrams in sections, with the text that stands for it where it cannot be seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from pellucid.report.alt import describe
from pellucid.report.chart import Chart, Heatmap, LegendKey
from pellucid.report.diagram import Bars, Graph, Grid, Histogram, NumberLine

Plot = Chart | Heatmap | Grid | Bars | Histogram | NumberLine | Graph
PAGE = 760
"""Pixels for plots beside each other: two charts, each as wide as a telephone."""
NARROW = 390
"""Pixels for a figure that is read on a telephone too: one chart, or two small grids."""


@dataclass(frozen=True)
class Section:
    """Plots beside and below each other, under a heading; `size` is that of each one's axes."""

    heading: str
    plots: Sequence[Plot]
    size: tuple[int, int] = (300, 160)


@dataclass(frozen=True)
class Excerpt:
    """A text and what it is."""

    title: str
    text: str


@dataclass(frozen=True)
class Figure:
    """Sections below each other, the legend below the first heading, and a remark at the end; on a page also
    excerpts of texts.

    `alt` says in words what the figure shows; `width` is the room for plots beside each other.
    """

    title: str
    sections: Sequence[Section]
    note: str = ""
    alt: str = ""
    width: int = PAGE
    excerpts: Sequence[Excerpt] = ()
    found: str = ""
    """What the figure shows, in one sentence, below the title of its page."""

    def keys(self) -> list[LegendKey]:
        """Returns the legend: each key once, in the order of the series."""
        charts = (plot for section in self.sections for plot in section.plots if isinstance(plot, Chart))
        return list(dict.fromkeys(series.key for chart in charts for series in chart.series))


def make_figure(title: str, *plots: Plot, note: str = "", size: tuple[int, int] = (300, 160)) -> Figure:
    """Returns the figure of a page of text: its alternative text says all numbers, and it is narrow.

    >>> import numpy as np
    >>> grid = Grid("P", np.array([[1.0, 0.0], [0.25, 0.75]]), ("A", "B"), ("A", "B"))
    >>> make_figure("the pattern", grid).alt
    'the pattern. P: row A: A 1, B 0; row B: A 0.25, B 0.75.'
    """
    alt = " ".join([f"{title}.", *(f"{describe(plot)}." for plot in plots)])
    return Figure(title, group_plots(plots, size), note, alt, NARROW)


def group_plots(
    plots: Sequence[Plot], size: tuple[int, int] = (300, 160), heading: str = ""
) -> list[Section]:
    """Returns plots as sections of those that are alike, the heading above the first: those of one kind, and
    compact grids of one shape, since all plots of a section have room for the largest."""

    def kind(plot: Plot) -> tuple[str, tuple[int, ...]]:
        shape = np.shape(plot.values) if isinstance(plot, Grid) and plot.is_compact else ()
        return type(plot).__name__, shape

    groups = [list(alike) for _, alike in groupby(plots, kind)]
    return [Section("" if i else heading, alike, size) for i, alike in enumerate(groups)]

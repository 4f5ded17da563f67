"""Plots inside an HTML page of text: drawings with their numbers in words, and their legend."""

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from pellucid.report.alt import describe
from pellucid.report.chart import LegendKey
from pellucid.report.diagram import Grid
from pellucid.report.figure import Plot, Section, make_figure
from pellucid.report.svg import ZOOM, has_name, plot_marks, tile
from pellucid.report.svg.marks import stroke, svg_tag


def draw_key(key: LegendKey) -> str:
    """Returns an entry of the legend: its line and its name."""
    line = f'<path fill="none" {stroke(key)} stroke-width="2" d="M0 5h22"/>'
    return f'<li><svg viewBox="0 0 22 10" width="22" height="10">{line}</svg> {escape(key.name)}</li>'


def draw_section(section: Section, number: int) -> Iterator[str]:
    """Yields the plots of a section, each an <svg> of its own with its numbers in words, in a <div> of the
    class `tiles`, which the page lays out; `number` is that of no other section on the page."""
    shared = tile(section)
    yield '<div class="tiles">'
    for j, plot in enumerate(section.plots):
        size = tile(Section("", [plot])) if isinstance(plot, Grid) else shared  # a grid may be much wider
        yield svg_tag(*size.outer, f'role="img" width="{ZOOM * size.outer[0]:g}"')
        yield f"<desc>{escape(describe(plot))}</desc>"
        yield from plot_marks(plot, f"plot-{number}-{j}", size, 0, 0)
        yield "</svg>"
    yield "</div>"


def draw_plots(plots: Sequence[Plot], number: int, size: tuple[int, int] = (300, 160)) -> Iterator[str]:
    """Yields the legend of some plots, where they have one, and the plots, those of one kind together."""
    figure = make_figure("", *plots, size=size)
    if keys := list(filter(has_name, figure.keys())):
        yield f'<ul class="legend">{"".join(map(draw_key, keys))}</ul>'
    for i, section in enumerate(figure.sections):
        yield from draw_section(section, 100 * number + i)

"""Every color of a plot follows the page's style: ink and paper always, lines and heat maps in the dark."""

import re

import numpy as np
import pytest

from pellucid.report.chart import DARK_SCALES, SCALES
from pellucid.report.figure import Figure
from pellucid.report.page_colors import DARK, PAGE, list_shades, plot_rules
from pellucid.report.report import report_figure
from pellucid.report.svg.marks import hex_color
from tests.report.examples import FIGURES

COLOR = r'(?:fill|stroke)="(#\w+)"'


@pytest.mark.parametrize("name", FIGURES)
def test_no_color_of_a_drawing_is_left_as_it_is(name: str) -> None:
    figure: Figure = FIGURES[name]
    page = report_figure(figure).to_html()
    body = page.partition("</header>")[2].partition("<script")[0]
    assert set(re.findall(COLOR, body)) <= {*PAGE, *DARK, *list_shades()}
    assert "style=" not in body
    style = page.partition("<style>")[2].partition("</style>")[0]
    for color in set(re.findall(COLOR, body)):
        assert f'[fill="{color}"]' in style, color


@pytest.mark.parametrize("scale", SCALES)
def test_a_cell_of_any_value_has_a_dark_color_at_the_same_place(scale: str) -> None:
    shades = list_shades()
    assert SCALES.keys() == DARK_SCALES.keys()
    for place in np.linspace(0, 1, 777):
        assert hex_color(place, scale) in shades
    ends = [tuple(int(shades[hex_color(at, scale)][i : i + 2], 16) for i in (1, 3, 5)) for at in (0.0, 1.0)]
    assert ends == [DARK_SCALES[scale][0], DARK_SCALES[scale][-1]]


def test_nothing_large_is_dark_on_a_dark_page() -> None:
    """On paper a large value is dark, and on a dark page it is bright."""
    for scale in ("mask", "log", "share"):
        assert sum(SCALES[scale][0]) > sum(SCALES[scale][-1])
        assert sum(DARK_SCALES[scale][0]) < sum(DARK_SCALES[scale][-1])


def test_a_page_without_a_drawing_needs_no_rule() -> None:
    assert plot_rules("<p>text</p>") == ""

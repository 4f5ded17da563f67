"""Plots inside a page are drawings with their numbers in words."""

import re
from xml.etree import ElementTree

import numpy as np

from pellucid.report.chart import Axis, Chart, LegendKey, Series
from pellucid.report.diagram import Grid
from pellucid.report.inline import draw_plots


def test_plots_of_one_kind_stand_together_below_their_legend() -> None:
    curve = Series(LegendKey("loss <1>"), np.arange(3.0), np.array([3.0, 2.0, 1.0]))
    chart = Chart("loss", Axis("step", 0, 2), Axis("nats", 0, 3), [curve])
    grid = Grid("P", np.array([[1.0, 0.25]]), ("A",), ("A", "B"))
    html = "".join(draw_plots([chart, chart, grid], 7))
    found = ElementTree.fromstring(f"<body>{html}</body>")
    assert [child.tag for child in found] == ["ul", "div", "div"]
    assert [len(list(child)) for child in found] == [1, 2, 1]
    assert "A 1, B 0.25" in html and "loss &lt;1&gt;" in html
    ids = re.findall(r'id="([^"]+)"', html)
    assert len(ids) == len(set(ids))

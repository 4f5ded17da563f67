"""A page is one file of well-formed HTML: its texts are escaped, and its plots have their numbers as text."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np

from pellucid.report.chart import Axis, Chart, LegendKey, Series
from pellucid.report.diagram import Grid
from pellucid.report.html import MOST_ROWS, draw_plots
from pellucid.report.items import OnPage, Table
from pellucid.report.report import Report
from tests.report.full_view import FULL


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "p", "path", "rect", "circle", "line"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("p", "path", "rect", "circle", "line"):
            assert self.open.pop() == tag


def test_a_page_is_well_formed_and_shows_no_text_as_markup() -> None:
    rows = [["", "a"], *([f"row {i} <b>", "1"] for i in range(MOST_ROWS + 2))]
    table = Table(rows, heading="<i>", meanings=["<u>"] * (MOST_ROWS + 2))
    page = Report("a<model", "<p>", [["<em>"], [table], [OnPage(lambda: ["<hr>"])], [FULL], [FULL]]).to_html()
    tags = Tags()
    tags.feed(page.replace("<hr>", ""))
    assert not tags.open
    assert not re.search("<(b|i|u|em|model)>", page) and "<hr>" in page
    assert "·a&lt;b" in page and "Attention of &lt;b&gt;" in page and "and 2 more rows" in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert "{{" not in page and "<script" not in page and "http-equiv" in page


def test_a_view_folds_in_a_notebook() -> None:
    shown = Report("", blocks=[["a <note>"], [FULL]])._repr_html_()
    assert "a &lt;note&gt;" in shown and "<details" in shown and "Attention of &lt;b&gt;" in shown


def test_plots_of_one_kind_stand_together_below_their_legend() -> None:
    curve = Series(LegendKey("loss <1>"), np.arange(3.0), np.array([3.0, 2.0, 1.0]))
    chart = Chart("loss", Axis("step", 0, 2), Axis("nats", 0, 3), [curve])
    grid = Grid("P", np.array([[1.0, 0.25]]), ("A",), ("A", "B"))
    html = "".join(draw_plots([chart, chart, grid], "7"))
    found = ElementTree.fromstring(f"<body>{html}</body>")
    assert [child.tag for child in found] == ["ul", "div", "div"]
    assert [len(list(child)) for child in found] == [1, 2, 1]
    assert "A 1, B 0.25" in html and "loss &lt;1&gt;" in html
    ids = re.findall(r'id="([^"]+)"', html)
    assert len(ids) == len(set(ids))

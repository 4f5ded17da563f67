"""A diagram in characters: every number that the drawing has."""

import re
from dataclasses import replace

import numpy as np
import pytest

from pellucid.report.chart import Axis, Chart, LegendKey, PointLabel, Series
from pellucid.report.figure import make_figure
from pellucid.report.svg import write_svg
from pellucid.report.text import write_text
from tests.report.examples import BARS, FIGURES, GRAPH, LOSS, MAP, PATTERN, RELIABILITY, ROW, SHARES
from tests.report.svg_text import find_texts

NUMBER = re.compile(r"−?\d+\.\d{3,}")


@pytest.mark.parametrize("name", FIGURES)
def test_the_terminal_and_the_alternative_text_have_every_number_of_the_drawing(name: str) -> None:
    drawn = {number for words, _ in find_texts(write_svg(FIGURES[name])) for number in NUMBER.findall(words)}
    assert drawn <= set(NUMBER.findall("\n".join(write_text(FIGURES[name]))))
    assert drawn <= set(NUMBER.findall(FIGURES[name].alt))


def test_a_masked_cell_is_a_stroke() -> None:
    assert list(write_text(PATTERN)) == [
        "P: attention pattern: query ↓, key →",
        "        A       B",
        "A       1       ╱",
        "B  0.3302  0.6698",
        "╱ masked",
    ]


def test_a_compact_grid_has_multiples_of_a_unit_and_shades_where_it_is_wide() -> None:
    title, *lines = write_text(MAP, width=40)
    assert title.endswith("in units of 0.01")
    assert lines == [
        "     0   1   2",
        "0    0 −12  75",
        "1  100  50   ╱",
        "  0:·The  1:·animal  2:·tired",
    ]
    title, *lines = write_text(replace(MAP, values=MAP.values / 1000), width=40)
    assert title.endswith("in units of 1e-05")
    assert lines[1:3] == ["0    0 −12  75", "1  100  50   ╱"]
    title, *lines = write_text(MAP, width=10)
    assert title.endswith("shades up to 1")
    assert lines[:2] == ["0  −▓", "1 █▒╱"]


def test_bars_have_lengths_in_proportion() -> None:
    lines = list(write_text(BARS, width=60))
    filled = [line.count("█") for line in lines if "█" in line]
    assert filled == sorted(filled)
    assert filled[3] == pytest.approx(0.55104 / 0.20084 * filled[2], abs=2)


def test_equal_entries_of_a_row_are_counted() -> None:
    lines = list(write_text(ROW, width=41))
    assert lines[2].count("2") == 2
    assert lines[1] == "X (0, 0, 2, 2), mean 1"


def test_a_graph_lists_each_value_after_what_it_reads_with_its_gradient_below() -> None:
    lines = list(write_text(GRAPH))
    assert lines[-2:] == ["  f_1 = 21   ← p, x", "    df_1 = 1"]
    assert [line.split()[0] for line in lines[1::2]] == ["x", "y", "s", "p", "f_1"]


def test_marks_of_a_chart_are_listed_below_it() -> None:
    assert list(write_text(LOSS))[-1].endswith("● (6, 0.5392) 3 of 3 right")


def test_the_series_of_a_figure_are_named_with_their_ends() -> None:
    x = np.array([0.0, 1.0])
    curves = [
        Series(LegendKey(name), x, np.array([2.0, end])) for name, end in (("with", 0.5), ("without", 1))
    ]
    level = Series(LegendKey("floor"), x, np.array([0.25, 0.25]), "level")
    chart = Chart("loss", Axis("update", 0, 1), Axis("nats", 0, 2), [*curves, level])
    lines = [line.strip() for line in write_text(make_figure("two runs", chart))]
    assert lines[-3:] == ["with 2, 0.5", "without 2, 1", "floor at 0.25"]
    assert len(list(write_text(chart))) == len(lines) - 3


def test_a_chart_of_points_alone_is_a_scatter_plot() -> None:
    marks = [PointLabel(0.0, 0.0, "low"), PointLabel(1.0, 1.0, "high"), PointLabel(9.0, 9.0, "outside")]
    chart = Chart("scatter", Axis("x", 0, 1), Axis("y", 0, 1), (), marks)
    lines = list(write_text(chart, width=4, height=2))
    assert [line.partition("│")[2] for line in lines[1:3]] == ["   ⠈", "⡀"]
    words = [words for words, _ in find_texts(write_svg(make_figure("scatter", chart)))]
    assert {"low", "high"} <= set(words)
    assert not {"outside", "no data"} & set(words)


def test_a_reliability_diagram_marks_what_is_expected_and_the_gap_to_it() -> None:
    """0.25 where 0.375 is expected, 0.75 where 0.625, 0.5 where 0.875; an empty bin has no line."""
    lines = list(write_text(RELIABILITY, width=56))
    assert lines[1:4] == [
        "0.25–0.5  0.250 −0.125 ████████░░░│",
        "0.5–0.75  0.750 +0.125 ███████████████████│▒▒▒▒",
        "  0.75–1  0.500 −0.375 ████████████████░░░░░░░░░░░│",
    ]
    assert list(write_text(SHARES, width=56))[1].endswith(f"0.500 {'█' * 39}")

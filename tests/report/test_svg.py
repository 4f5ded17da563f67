"""A figure as SVG: every text can be read, on paper, on a telephone and by a screen reader."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from pellucid.report.chart import Axis, Chart, PointLabel
from pellucid.report.figure import make_figure
from pellucid.report.report import report_figure
from pellucid.report.svg import write_svg
from pellucid.report.svg.chart import Area, place_labels
from pellucid.report.text import write_text
from tests.report.examples import BARS, CHANNELS, FIGURES, GRAPH, LOSS, MAP, PATTERN, TOKENS
from tests.report.svg_text import SVG, find_faults, find_texts

LARGEST = 60_000


def words(svg: bytes) -> list[str]:
    return [text for text, _ in find_texts(svg)]


@pytest.mark.parametrize("name", FIGURES)
def test_no_text_overlaps_another_or_is_cut_off(name: str) -> None:
    assert not find_faults(write_svg(FIGURES[name]))


@pytest.mark.parametrize("name", FIGURES)
def test_a_drawing_is_small_scales_and_says_what_it_shows(name: str) -> None:
    svg = write_svg(FIGURES[name])
    drawing = ElementTree.fromstring(svg)
    assert len(svg) < LARGEST
    assert drawing.get("viewBox")
    assert drawing.get("role") == "img"
    assert drawing.findtext(f"{SVG}title") == FIGURES[name].title
    assert drawing.findtext(f"{SVG}desc") == FIGURES[name].alt


def test_overlapping_and_cut_texts_are_found() -> None:
    svg = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 60 30">{}</svg>'
    apart = '<text x="0" y="12">one</text><text x="30" y="12">two</text>'
    assert not find_faults(svg.format(apart).encode())
    assert len(find_faults(svg.format(apart.replace("30", "10")).encode())) == 1
    assert len(find_faults(svg.format(apart.replace("30", "50")).encode())) == 1


def test_every_number_of_a_grid_stands_in_its_cell_and_a_masked_cell_has_none() -> None:
    shown = words(write_svg(make_figure("", PATTERN)))
    assert [text for text in shown if re.fullmatch(r"[\d.]+", text)] == ["1", "0.3302", "0.6698"]
    assert "masked" in shown


def test_a_cell_of_a_compact_grid_says_its_number_under_the_pointer() -> None:
    drawing = ElementTree.fromstring(write_svg(make_figure("", MAP)))
    said = [cell.text or "" for cell in drawing.iter(f"{SVG}title")][1:]
    assert len(said) == 5  # the masked cell has none
    assert said[1] == "layer 0, position ·animal: -0.125"
    assert not [text for text in words(write_svg(make_figure("", MAP))) if text in ("0.75", "0.5")]


def test_a_grid_of_texts_shows_them_in_place_of_the_numbers_that_color_the_cells() -> None:
    svg = write_svg(make_figure("", TOKENS))
    assert {"·the", "<b>", "·a", "·cat & dog"} <= set(words(svg))
    assert not {"0.1", "0.9", "0.25", "0.5"} & set(words(svg))
    drawing = ElementTree.fromstring(svg)
    cells = {g.findtext(f"{SVG}text"): g.findtext(f"{SVG}title") for g in drawing.iter(f"{SVG}g")}
    assert cells == {"·the": "0.1", "<b>": "0.9", "·a": "0.25", "·cat & dog": "0.5"}
    assert "L1: A ·a 0.25" in make_figure("", TOKENS).alt
    assert any("·cat & dog" in line for line in write_text(TOKENS))


def test_a_frame_is_drawn_around_the_cells_that_are_averaged() -> None:
    drawing = ElementTree.fromstring(write_svg(make_figure("", CHANNELS)))
    frames = [box for box in drawing.iter(f"{SVG}rect") if box.get("stroke-width") == "2.5"]
    assert len(frames) == 2


def test_a_longer_bar_is_a_larger_number_and_groups_differ_without_color() -> None:
    drawing = ElementTree.fromstring(write_svg(make_figure("", BARS)))
    bars = [box for box in drawing.iter(f"{SVG}rect") if box.get("height") == "12"]
    before, after = bars[::2], bars[1::2]
    assert np.allclose([float(bar.get("width", 0)) / 190 for bar in before], BARS.groups["before"], atol=1e-3)
    assert np.allclose([float(bar.get("width", 0)) / 190 for bar in after], BARS.groups["after"], atol=1e-3)
    assert {bar.get("fill") for bar in after} == {"none"}
    assert "none" not in {bar.get("fill") for bar in before}


def test_an_open_mark_is_a_ring() -> None:
    drawing = ElementTree.fromstring(write_svg(FIGURES["gates"]))
    fills = [dot.get("fill") == dot.get("stroke") for dot in drawing.iter(f"{SVG}circle")]
    assert fills == [False, True, False]


def test_a_mark_outside_of_the_axes_is_not_drawn() -> None:
    outside = Chart("", Axis("", 0, 1), Axis("", 0, 1), [], [PointLabel(2, 0.5, "far")])
    assert "far" not in words(write_svg(make_figure("", outside)))


def test_whole_steps_have_whole_ticks() -> None:
    for last in (1, 2, 3, 6, 40):
        ticks = [text for text, _ in Axis("update", 0, last, is_whole=True).ticks(5)]
        assert all(text.isdigit() for text in ticks)
        assert ticks[0] == "0"


def test_many_labels_at_one_place_do_not_overlap() -> None:
    room = Area(0, 0, 300, 160)
    placed = place_labels([f"label {i}" for i in range(8)], [(150.0 + i, 80.0) for i in range(8)], [], room)
    assert not any(a.overlaps(b) for i, a in enumerate(placed) for b in placed[:i])
    assert all(room.left <= a.left and a.right <= room.right for a in placed)


def test_a_gradient_stands_below_its_value() -> None:
    texts = dict(find_texts(write_svg(make_figure("", GRAPH))))
    assert texts["13"].top > texts["3"].top
    assert texts["9"].top != texts["18"].top
    assert "f1" in texts  # f_1 with a subscript


@pytest.mark.parametrize("direction", ["right", "down"])
def test_edges_go_in_the_direction_of_the_graph(direction: str) -> None:
    texts = dict(find_texts(write_svg(make_figure("", replace(GRAPH, direction=direction)))))
    first, last = texts["3"], texts["21"]
    assert first.left < last.left if direction == "right" else first.top < last.top


def test_a_number_on_a_colored_cell_can_be_read() -> None:
    drawing = report_figure(FIGURES["all"]).to_html()
    cells = re.findall(
        r'<rect[^>]*fill="#\w+"[^>]*/><text[^>]*fill="(#0[1]0101|#fefefe)"[^>]*>([^<]*)',
        drawing.replace("\n", ""),
    )
    assert ("#010101", "0.3302") in cells


def test_a_chart_without_a_name_has_no_legend() -> None:
    assert words(write_svg(make_figure("", LOSS))).count("loss") == 1
    assert "" not in words(write_svg(FIGURES["gates"]))


def test_a_reliability_diagram_has_a_bar_a_gap_and_a_level_for_each_bin_that_is_not_empty() -> None:
    drawing = ElementTree.fromstring(write_svg(FIGURES["reliability"]))
    boxes = [box for box in drawing.iter(f"{SVG}rect") if float(box.get("width") or 0) > 60]
    bars = [box for box in boxes if box.get("fill-opacity") == "0.55"]
    gaps = [box for box in boxes if box.get("fill-opacity") == "0.25"]
    assert [float(bar.get("height") or 0) for bar in bars] == pytest.approx([55, 165, 110])
    assert [float(gap.get("height") or 0) for gap in gaps] == pytest.approx([27.5, 27.5, 82.5])

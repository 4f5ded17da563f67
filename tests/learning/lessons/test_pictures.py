"""Pictures of runs show the numbers of their tapes."""

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

import pellucid
from pellucid.base.errors import AddressError
from pellucid.explanation.trace import Trace
from pellucid.learning.lessons.ladder import lessons
from pellucid.learning.lessons.pictures import (
    draw_bars,
    draw_gates,
    draw_graph,
    draw_grid,
    draw_losses,
    draw_norm_axes,
    draw_row,
    draw_stack,
)
from pellucid.reference.tape import Tape
from pellucid.report.figure import make_figure
from pellucid.report.svg import write_svg
from tests.report.svg_text import find_faults, find_texts

ATTENTION = "blocks.0.attn."
SMALLEST = 11
"""The font size of a number in a drawing; a telephone is 320 pixels wide."""
PATH = [
    "embedded",
    f"{ATTENTION}q[t=1]",
    f"{ATTENTION}k",
    f"{ATTENTION}v",
    f"{ATTENTION}pattern[t=1]",
    f"{ATTENTION}z[t=1]",
    "logits[t=1]",
    "loss",
]


@pytest.fixture(scope="module")
def example_3() -> Trace:
    return pellucid.load("example-3").trace(
        "A B", target="C", update="sgd", lr=0.5, only=["unembed.weight"], steps=1
    )


@pytest.fixture(scope="module")
def example_6() -> Trace:
    return pellucid.load("example-6").trace("A B", target="C")


def test_a_pattern_has_its_tokens_and_hatches_what_the_mask_forbids(example_3: Trace) -> None:
    grid = draw_grid(example_3, f"{ATTENTION}pattern")
    assert np.allclose(grid.values[1], [0.33024, 0.66976], atol=5e-6)
    assert (grid.rows, grid.columns, grid.scale) == (["A", "B"], ["A", "B"], "share")
    assert grid.is_masked.tolist() == [[False, True], [False, False]]


def test_the_pattern_of_abcd_and_a_token_that_is_markup_or_a_control_character() -> None:
    trace = pellucid.load("abcd").trace("A B")
    assert draw_grid(trace, f"{ATTENTION}pattern").values[1] == pytest.approx([0.1956, 0.8044], abs=5e-5)
    odd = replace(trace, labels=trace.labels | {"t": ["<b>&", "\x1b"], "s": ["<b>&", "\x1b"]})
    texts = [
        words for words, _ in find_texts(write_svg(make_figure("", draw_grid(odd, f"{ATTENTION}pattern"))))
    ]
    assert texts.count("<b>&") == texts.count("\\x1b") == 2


def test_a_weight_is_drawn_as_formulas_use_it(example_3: Trace) -> None:
    grid = draw_grid(example_3, f"{ATTENTION}q_proj.weight")
    assert grid.values.tolist() == [[-1, -2], [-1, 2]]
    assert (grid.row_label, grid.column_label) == ("in", "out")


def test_a_grid_needs_two_axes(example_6: Trace) -> None:
    with pytest.raises(AddressError, match="h, t, s"):
        draw_grid(example_6, f"{ATTENTION}pattern")
    assert draw_grid(example_6, f"{ATTENTION}pattern[h=1]").values[1] == pytest.approx(
        [0.2214, 0.7786], abs=5e-5
    )


def test_a_graph_has_the_gradients_and_the_edges_of_the_tape(example_3: Trace) -> None:
    graph = draw_graph(example_3, PATH, "B")
    nodes = {node.name: node for node in graph.nodes}
    assert nodes[PATH[1]].symbol == "Q[1]"
    assert nodes[PATH[1]].gradient == pytest.approx([-1.56789, 0.94074], abs=5e-6)
    read = {(edge.source, edge.target) for edge in graph.edges}
    assert ("embedded", PATH[1]) in read
    assert (PATH[1], PATH[4]) in read  # through the scores, which are not listed
    assert (PATH[3], PATH[5]) in read
    assert ("embedded", "loss") not in read  # only through values that are listed
    assert not find_faults(write_svg(make_figure("", graph)))


def test_bars_before_and_after_an_update(example_3: Trace) -> None:
    bars = draw_bars({"before": (example_3, "probs[t=1]"), "after": (example_3, "probs@1[t=1]")}, "after B")
    assert bars.labels == ["A", "B", "C", "D"]
    assert (bars.groups["before"][2], bars.groups["after"][2]) == pytest.approx((0.20084, 0.26062), abs=5e-6)
    assert bars.range() == (0, 1)
    with pytest.raises(AddressError):
        draw_bars({"all": (example_3, "probs")}, "")


def test_a_closed_gate_is_open_on_paper() -> None:
    """U = (−1, 2.5) at A and (.66976, −1.83952) at B: each position closes the other's gate."""
    chart = draw_gates(pellucid.load("example-5").trace("A B"), "blocks.0.mlp.up")
    assert [mark.is_open for mark in chart.marks] == [True, False, False, True]
    assert [mark.y for mark in chart.marks] == pytest.approx([0, 2.5, 0.66976, 0], abs=5e-6)
    assert chart.marks[0].label == "A f=0: closed"


def test_losses_say_where_the_number_of_right_predictions_changes() -> None:
    model, prompts = pellucid.load("example-3"), ["A B", "A A", "B A"]
    trace = model.trace(
        prompts, target=["C", "D", "C"], update="sgd", lr=0.5, steps=6, freeze=["embed.weight"]
    )
    for k in range(7):
        right = np.argmax(trace.value(f"logits@{k}")[:, -1], -1) == trace.value("targets")[:, -1]
        trace.tape.constant(f"right@{k}", int(right.sum()))
    chart = draw_losses({"": trace})
    assert chart.series[0].y[[0, 1, 6]] == pytest.approx([1.8568, 1.0628, 0.5392], abs=5e-5)
    assert [(mark.x, mark.label) for mark in chart.marks] == [
        (0, "0 of 3 right"),
        (1, "1 of 3 right"),
        (3, "2 of 3 right"),
        (6, "3 of 3 right"),
    ]
    assert not draw_losses({"one": trace, "other": trace}).marks


def test_a_stack_joins_each_sub_layer_with_the_stream_and_names_its_block(example_6: Trace) -> None:
    graph = draw_stack(example_6, t=1)
    read = {(edge.source, edge.target) for edge in graph.edges}
    assert ("positioned[t=1]", "blocks.0.resid_mid[t=1]") in read
    assert ("blocks.0.attn_out[t=1]", "blocks.0.resid_mid[t=1]") in read
    assert "X_mid[1] of block 1" in {node.symbol for node in graph.nodes}
    assert graph.nodes[-1].value == pytest.approx([0.04647, 0.41972, 0.13570, 0.39811], abs=5e-6)


@pytest.mark.parametrize("number", lessons())
def test_every_picture_of_a_lesson_can_be_read_on_paper_and_on_a_telephone(number: int) -> None:
    for name, figure in lessons()[number].program.pictures.items():
        svg = write_svg(figure)
        assert not find_faults(svg), name
        assert len(svg) < 60_000
        assert figure.title
        assert figure.alt
        _, _, width, _ = map(float, (ElementTree.fromstring(svg).get("viewBox") or "").split())
        assert SMALLEST * 320 / width >= 6, f"{name}: {width:g} pixels are too many for a telephone"


def test_a_row_on_a_line_and_what_both_norms_average() -> None:
    tape = Tape()
    tape.describe(tape.constant("x", [[0.0, 0, 2, 2], [1, 1, 5, 5]]), "b c", "X")
    trace = Trace(tape)
    line = draw_row({"first": (trace, "x[b=0]"), "second": (trace, "x[b=1]")}, "rows")
    assert [row.mean for row in line.rows] == [1, 3]
    assert (line.axis.low, line.axis.high) == (-0.5, 5.5)
    by_row, by_column = draw_norm_axes(trace, "x")
    assert (len(by_row.frames), len(by_column.frames)) == (2, 4)

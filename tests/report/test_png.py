"""A figure as PNG, where matplotlib is."""

import dataclasses
import importlib

import pytest

from pellucid.base.errors import UsageError
from pellucid.report import png
from pellucid.report.figure import make_figure
from pellucid.report.png import write_png
from tests.report.examples import BARS, CHANNELS, GRAPH, LOSS, MAP, PATTERN, TOKENS


def test_a_png_holds_grids_and_a_graph_is_refused() -> None:
    try:
        importlib.import_module("matplotlib.figure")
    except ImportError:
        pytest.skip("no matplotlib")
    assert write_png(make_figure("", PATTERN, CHANNELS, MAP, BARS, LOSS)).startswith(b"\x89PNG")
    with pytest.raises(UsageError):
        write_png(make_figure("", GRAPH))


def test_a_cell_of_a_png_has_the_text_of_the_grid() -> None:
    try:
        figures = importlib.import_module("matplotlib.figure")
    except ImportError:
        pytest.skip("no matplotlib")
    axes = figures.Figure().subplots()
    png._draw_grid(axes, dataclasses.replace(TOKENS, texts=(("·the", "$a"), ("·a", "$b"))))
    assert [mark.get_text() for mark in axes.texts] == ["·the", r"\$a", "·a", r"\$b"]

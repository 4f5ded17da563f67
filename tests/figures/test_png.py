"""A figure as PNG, where matplotlib is."""

import importlib

import pytest

from pellucid.errors import UsageError
from pellucid.figures.figure import make_figure
from pellucid.figures.png import write_png
from tests.figures.examples import BARS, CHANNELS, GRAPH, LOSS, MAP, PATTERN


def test_a_png_holds_grids_and_a_graph_is_refused() -> None:
    try:
        importlib.import_module("matplotlib.figure")
    except ImportError:
        pytest.skip("no matplotlib")
    assert write_png(make_figure("", PATTERN, CHANNELS, MAP, BARS, LOSS)).startswith(b"\x89PNG")
    with pytest.raises(UsageError):
        write_png(make_figure("", GRAPH))

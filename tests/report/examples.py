"""One figure of each kind, small enough to check by hand."""

import numpy as np

from pellucid.report.chart import Axis, Chart, LegendKey, PointLabel, Series
from pellucid.report.diagram import (
    Bars,
    CellFrame,
    Graph,
    GraphEdge,
    GraphNode,
    Grid,
    Histogram,
    NumberLine,
    NumberRow,
)
from pellucid.report.figure import Figure, make_figure

PATTERN = Grid(
    "P: attention pattern",
    np.array([[1.0, 0.0], [0.33024, 0.66976]]),
    ("A", "B"),
    ("A", "B"),
    "query",
    "key",
    masked=np.array([[0.0, 1.0], [0.0, 0.0]]),
)
MAP = Grid(
    "recovered share: how much of the difference comes back",
    np.array([[0.0, -0.125, 0.75], [1.0, 0.5, np.nan]]),
    ("0", "1"),
    ("·The", "·animal", "·tired"),
    "layer",
    "position",
    "signed",
    decimals=3,
    is_compact=True,
)
CHANNELS = Grid(
    "LayerNorm: each row by itself",
    np.array([[0.0, 0, 2, 2], [0.5, 2.3, -1.2, 5.6]]),
    ("b=0", "b=1"),
    ("c=0", "c=1", "c=2", "c=3"),
    scale="none",
    frames=(CellFrame((0, 1), (0, 4)), CellFrame((1, 2), (0, 4))),
)
TOKENS = Grid(
    "the most probable token of each layer",
    np.array([[0.1, 0.9], [0.25, 0.5]]),
    ("L0", "L1"),
    ("A", "B"),
    "layer",
    "position",
    texts=(("·the", "<b>"), ("·a", "·cat & dog")),
)
BARS = Bars(
    "probabilities after B",
    ("A", "B", "C", "D"),
    {
        "before": np.array([0.10376, 0.14436, 0.20084, 0.55104]),
        "after": np.array([0.1, 0.1, 0.57637, 0.22363]),
    },
    limits=(0, 1),
)
SIGNED_BARS = Bars("dℓ", ("C", "D"), {"": np.array([-0.79916, 0.55104])}, "p − y")
RELIABILITY = Histogram(
    "reliability",
    Axis("confidence", 0, 1),
    Axis("accuracy", 0, 1),
    np.array([0, 0.25, 0.5, 0.75, 1]),
    np.array([np.nan, 0.25, 0.75, 0.5]),
    np.array([np.nan, 0.375, 0.625, 0.875]),
    ("accuracy", "confidence"),
)
SHARES = Histogram(
    "confidences",
    Axis("confidence", 0, 1),
    Axis("share", 0, 0.5),
    np.array([0, 0.25, 0.5, 0.75, 1]),
    np.array([np.nan, 0.5, 0.25, 0.25]),
    names=("share", ""),
)
ROW = NumberLine(
    "a row before and after LayerNorm",
    Axis("value", -2, 3),
    (
        NumberRow("X", np.array([0.0, 0, 2, 2]), ("x₀", "x₁", "x₂", "x₃"), 1.0),
        NumberRow("LayerNorm(X)", np.array([-1.0, -1, 1, 1]), mean=0.0),
    ),
)
_U = np.linspace(-3, 3, 61)
GATES = Chart(
    "gates",
    Axis("u", -3, 3),
    Axis("max(0, u)", -1, 3),
    [Series(LegendKey(""), _U, np.maximum(_U, 0))],
    [
        PointLabel(-1, 0, "A 0: closed", is_open=True),
        PointLabel(2.5, 2.5, "A 1"),
        PointLabel(-1.2, 0, "B 1: closed", is_open=True),
    ],
)
_LOSS = np.array([1.8568, 1.0628, 0.9601, 0.8754, 0.7899, 0.6859, 0.5392])
LOSS = Chart(
    "loss over updates",
    Axis("update", 0, 6, is_whole=True),
    Axis("nats", 0, 2),
    [Series(LegendKey("loss"), np.arange(7.0), _LOSS, "points")],
    [PointLabel(k, _LOSS[k], f"{right} of 3 right") for k, right in ((0, 0), (1, 1), (3, 2), (6, 3))],
)
GRAPH = Graph(
    "x² y + x",
    (
        GraphNode("x", "x", 3.0, 13.0, is_given=True),
        GraphNode("y", "y", 2.0, 9.0, is_given=True),
        GraphNode("s", "s", 9.0, 2.0),
        GraphNode("p", "p", 18.0, 1.0),
        GraphNode("f", "f_1", 21.0, 1.0),
    ),
    (
        GraphEdge("x", "s", "x²"),
        GraphEdge("s", "p"),
        GraphEdge("y", "p"),
        GraphEdge("p", "f"),
        GraphEdge("x", "f"),
    ),
)
FIGURES: dict[str, Figure] = {
    "grid": make_figure("the pattern of B", PATTERN),
    "map": make_figure("layers and positions", MAP),
    "grid of texts": make_figure("the tokens", TOKENS),
    "two grids": make_figure("what is averaged", PATTERN, CHANNELS),
    "bars": make_figure("one update", BARS),
    "signed bars": make_figure("the gradient", SIGNED_BARS),
    "reliability": make_figure("is it calibrated?", RELIABILITY, size=(300, 220)),
    "histogram": make_figure("how sure is it?", SHARES),
    "number line": make_figure("a norm", ROW),
    "gates": make_figure("open and closed", GATES),
    "loss": make_figure("three prompts", LOSS),
    "graph": make_figure("values and gradients", GRAPH),
    "all": make_figure("all of them", PATTERN, BARS, ROW, GATES, GRAPH, note="a remark"),
}

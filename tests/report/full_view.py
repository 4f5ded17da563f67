"""A view with everything that a view may have."""

import numpy as np

from pellucid.report.chart import Axis, Chart, LegendKey, Series
from pellucid.report.diagram import Grid
from pellucid.report.items import View, ViewTable

CURVE = Series(LegendKey("entropy"), np.arange(3.0), np.array([1.0, 0.5, 0.25]))
FULL = View(
    "attention",
    "Attention of <b>",
    "H[h,t] = −Σ_s P ln P\nfrom blocks.L.attn.pattern",
    [ViewTable("heads", ("head", "token", "entropy"), [("0.1", "·a<b", 0.12345), ("1.0", None, 1e-9)])],
    [
        Chart("entropy", Axis("layer", 0, 2), Axis("nats", 0, 1), [CURVE]),
        Grid("P", np.array([[1.0, np.nan], [0.25, 0.75]]), ("A", "B"), ("A", "B")),
    ],
    ["A note."],
    {"entropy": np.array([[0.5, np.nan]])},
)

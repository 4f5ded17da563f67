"""What the recorder kept of a run as maps: layers from below to above, steps from left to right."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.training.history.curves import Array

_BLOCK = re.compile(r"blocks\.(\d+)\.")
FIRST, LAST = "embedding", "output"


@dataclass(frozen=True)
class Map:
    """Figures [layer step]; NaN where there is none."""

    title: str
    layers: list[str]
    steps: Array
    values: Array

    def thin(self, most: int) -> "Map":
        """Returns at most `most` steps, evenly spaced, the first and the last among them."""
        if len(self.steps) <= most:
            return self
        chosen = np.unique(np.linspace(0, len(self.steps) - 1, most).round().astype(int))
        return Map(self.title, self.layers, self.steps[chosen], self.values[:, chosen])


def maps(lines: Iterable[Mapping[str, Any]]) -> list[Map]:
    """Returns maps of the residual stream after each block and of its gradients and updates."""
    found = {line["step"]: line for line in lines if line["kind"] == "recorded" and _whole(line)}
    steps = sorted(found)
    columns = [_columns(found[step]) for step in steps]
    made = []
    for title in columns[0] if columns else ():
        layers = sorted({layer for column in columns for layer in column[title]}, key=_height)
        if not layers:  # gradients that were never finite have no norm to show
            continue
        values = [[column[title].get(layer, math.nan) for column in columns] for layer in layers]
        made.append(Map(title, layers, np.array(steps, float), np.array(values)))
    return made


def _columns(line: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Returns the figures of each map at one step, by layer."""
    stream = {"embedded": FIRST} | {
        name: f"block {_BLOCK.match(name)[1]}"  # type: ignore[index]
        for name in line["activations"]
        if name.startswith("blocks.") and name.endswith(".resid_post")
    }
    kept = [
        (layer, line["activations"][name]) for name, layer in stream.items() if name in line["activations"]
    ]
    gradients, weights, updates = dict[str, float](), dict[str, float](), dict[str, float]()
    for name, row in line["parameters"].items():
        layer, weight = _layer(name), _number(row.get("weight"))
        for sums, length in (
            (gradients, _number(row.get("gradient"))),
            (weights, weight),
            (updates, _number(row.get("ratio")) * weight),
        ):
            if not math.isnan(length):  # a weight that was 0 has no ratio
                sums[layer] = math.hypot(sums.get(layer, 0.0), length)
    return {
        "residual stream after each block, RMS": {at: _number(row.get("rms")) for at, row in kept},
        "residual stream after each block, largest": {at: _number(row.get("max")) for at, row in kept},
        "gradient norm": gradients,
        "update / weight": {at: updates[at] / weights[at] for at in updates if weights[at]},
    }


def _layer(name: str) -> str:
    if found := _BLOCK.match(name):
        return f"block {found[1]}"
    return LAST if name.startswith(("final_norm", "unembed")) else FIRST


def _height(layer: str) -> tuple[int, int]:
    return {FIRST: 0, LAST: 2}.get(layer, 1), int(layer.removeprefix("block ")) if "block " in layer else 0


def _whole(line: Mapping[str, Any]) -> bool:
    tables = (line.get("activations"), line.get("parameters"))
    return type(line.get("step")) is int and all(
        isinstance(table, dict) and all(isinstance(row, dict) for row in table.values()) for table in tables
    )


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan

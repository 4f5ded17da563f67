"""Figures by name, and when two runs have printed another figure."""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Figures = dict[str, list[Any]]
"""By name: numbers, or texts and whole numbers, in order."""
LIMIT = 1e-4
"""The relative difference of a printed float32 number that counts."""
NARROW, NARROW_LIMIT = "bfloat16", 5e-3
"""The same where the name of what computed it has this word."""
SMALL = 1e-2
"""Numbers below this part of the largest one of their name are compared with that part of it."""


def flatten(value: Any) -> Figures:
    """Returns the figures of nested records, tables and lists by the names of their fields, without the
    places in lists."""
    found = defaultdict[str, list[Any]](list)
    _collect(value, "", found)
    return dict(found)


def _collect(value: Any, name: str, found: dict[str, list[Any]]) -> None:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            _collect(getattr(value, field.name), f"{name}.{field.name}", found)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            _collect(inner, f"{name}.{key}", found)
    elif isinstance(value, np.ndarray):
        found[name] += [float(number) for number in value.ravel()]
    elif isinstance(value, Sequence) and not isinstance(value, str):
        found[name].append(len(value))
        for inner in value:
            _collect(inner, name, found)
    elif isinstance(value, float):
        found[name].append(None if math.isnan(value) else value)
    else:
        found[name].append(value if isinstance(value, int | str | None) else str(value))


def find_changes(healthy: Figures, got: Figures) -> dict[str, str]:
    """Returns of each figure that is another one what it is and was."""
    changes = dict[str, str]()
    for name in [*healthy, *(name for name in got if name not in healthy)]:
        if change := _compare(name, healthy.get(name), got.get(name)):
            changes[name] = change
    return changes


def _compare(name: str, right: list[Any] | None, got: list[Any] | None) -> str:
    if right is None or got is None or len(right) != len(got):
        counts = ["no" if one is None else str(len(one)) for one in (got, right)]
        return f"{counts[0]} figures for {counts[1]}" + _raised(got)
    limit = NARROW_LIMIT if NARROW in name else LIMIT
    sizes = [abs(one) for one in right if isinstance(one, float) and math.isfinite(one)]
    least = SMALL * max(sizes, default=0.0)
    for one, other in zip(got, right, strict=True):
        if (
            isinstance(one, float)
            and isinstance(other, float)
            and math.isfinite(one)
            and math.isfinite(other)
        ):
            if abs(one - other) > limit * max(abs(one), abs(other), least):
                return f"{one:.6g} for {other:.6g}"
        elif one != other:
            return f"{str(one)[:60]} for {str(other)[:60]}"
    return ""


def _raised(got: list[Any] | None) -> str:
    first = got[0] if got else ""
    return f": {first}" if isinstance(first, str) and first.startswith("raised") else ""

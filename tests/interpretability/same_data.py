"""Whether two views say the same."""

import math
from collections.abc import Mapping, Sequence
from typing import Any


def check_same(one: Any, other: Any, tolerance: float = 1e-10, name: str = "data") -> None:
    """Asserts that two values of JSON are equal, numbers within a tolerance (relative above 1)."""
    if isinstance(one, Mapping):
        assert one.keys() == other.keys(), name
        for key in one:
            check_same(one[key], other[key], tolerance, f"{name}.{key}")
    elif isinstance(one, Sequence) and not isinstance(one, str):
        assert len(one) == len(other), name
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            check_same(a, b, tolerance, f"{name}[{i}]")
    elif isinstance(one, float) and isinstance(other, float):
        close = abs(one - other) <= tolerance * max(1.0, abs(one))
        assert close or one == other or (math.isnan(one) and math.isnan(other)), f"{name}: {one} and {other}"
    else:
        assert one == other, name

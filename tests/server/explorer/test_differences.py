"""The largest difference of each value, with infinities and NaN."""

import math

import numpy as np
import pytest

from pellucid.explanation.reuse import CHUNK
from pellucid.explanation.trace import Trace
from pellucid.reference.tape import Tape
from pellucid.server.explorer.differences import MOST_LISTED, ValueDifference, find_differences, list_largest


def make_trace(**values: object) -> Trace:
    tape = Tape()
    for name, value in values.items():
        tape.constant(name, value)
    return Trace(tape)


def test_only_values_of_both_in_one_shape_are_compared_in_program_order() -> None:
    a = make_trace(w=[1.0], x=[[1.0, 2.0], [3.0, 4.0]], y=[1.0, 2.0], z=1.0)
    b = make_trace(z=2.0, x=[[1.0, 2.0], [3.5, 4.25]], y=[1.0], u=1.0)
    found = list(find_differences(a, b))
    assert found == [ValueDifference("z", 1.0, (), 1.0, 2.0), ValueDifference("x", 0.5, (1, 0), 3.0, 3.5)]


@pytest.mark.parametrize(
    ("a", "b", "most", "cell"),
    [
        ([-np.inf, 1.0], [-np.inf, 1.5], 0.5, (1,)),
        ([np.inf, 1.0], [-np.inf, 1.5], np.inf, (0,)),
        ([1.0, 1.0], [1.5, np.nan], np.inf, (1,)),
        ([np.nan, 1.0], [np.nan, 2.0], 1.0, (1,)),
        ([1e308, 1.0], [-1e308, 1.0], np.inf, (0,)),
        ([0.0, 1.0], [-0.0, 1.0], 0.0, (0,)),
    ],
)
def test_infinities_and_nan(a: list[float], b: list[float], most: float, cell: tuple[int]) -> None:
    (found,) = find_differences(make_trace(x=a), make_trace(x=b))
    assert (found.most, found.cell) == (most, cell)


def test_the_largest_difference_of_a_large_value_is_found_in_any_chunk() -> None:
    a = np.zeros((3, CHUNK))
    for cell in ((0, 0), (1, 0), (2, CHUNK - 1)):
        b = a.copy()
        b[0, 5], b[1, 7], b[cell] = 1.0, -2.0, 3.0
        (found,) = find_differences(make_trace(x=a), make_trace(x=b))
        assert (found.most, found.cell) == (3.0, cell)


def test_the_list_is_bounded_to_the_largest_in_order() -> None:
    names = [f"x{i}" for i in range(MOST_LISTED + 50)]
    a = make_trace(**dict.fromkeys(names, 0.0))
    b = make_trace(**{name: 1.0 + (i % 7) for i, name in enumerate(names)})
    listed = list_largest(b, list(find_differences(a, b)))
    assert len(listed) == MOST_LISTED and min(entry["most"] for entry in listed) > 1
    assert [entry["name"] for entry in listed] == sorted((e["name"] for e in listed), key=names.index)
    assert not math.isnan(listed[0]["most"])

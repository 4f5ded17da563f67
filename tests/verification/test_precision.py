"""A systematic error below the noise of every cell is found by its slope."""

import numpy as np
import pytest

from pellucid.base.dtypes import BY_NAME
from pellucid.verification.precision import find_bias, regress
from pellucid.verification.rounding import Bounded, round_to
from tests.verification.stranger_llama import BUGS, compare_run


def test_a_slope_and_its_standard_error_are_those_of_a_regression() -> None:
    random = np.random.default_rng(0)
    direction = random.standard_normal((400, 30))
    slopes = []
    for _ in range(200):
        found = regress(0.25 * direction + random.standard_normal((400, 30)), direction)
        slopes.append(found.value)
    assert found.rows == pytest.approx(400, rel=0.1)
    assert np.mean(slopes) == pytest.approx(0.25, abs=0.003)
    assert np.std(slopes) == pytest.approx(found.error, rel=0.2)
    assert regress(direction, np.zeros_like(direction)).rows == 0


def summed(type: str) -> tuple[np.ndarray, Bounded]:
    """Sums of 64 products, each rounded to a type."""
    random = np.random.default_rng(1)
    a, b = random.standard_normal((50, 64)), random.standard_normal((64, 80))
    exact = Bounded(a @ b, np.abs(a) @ np.abs(b), 64)
    return round_to(exact.value, BY_NAME[type]), exact


@pytest.mark.parametrize("type", ["bfloat16", "float16"])
def test_rounding_has_no_slope_and_five_percent_has_one_that_no_cell_shows(type: str) -> None:
    got, exact = summed(type)
    dtype = BY_NAME[type]
    assert find_bias(got, exact, dtype) == ""
    wrong = round_to(1.05 * exact.value, dtype)
    assert find_bias(wrong, exact, dtype) == "too large by 0.05 of itself on average over all cells"
    assert find_bias(round_to(0.95 * exact.value, dtype), exact, dtype).startswith("too small by 0.05")
    if type == "bfloat16":
        assert exact.units(wrong, dtype).max() < exact.allowed


def test_one_row_is_not_a_sample() -> None:
    got, exact = summed("bfloat16")
    assert find_bias(1.05 * got[:1], Bounded(exact.value[:1], exact.terms[:1], 64), BY_NAME["bfloat16"]) == ""


def test_a_variance_divided_by_n_minus_one_is_a_bug_in_bfloat16() -> None:
    done = compare_run("bfloat16", BUGS["norm by n - 1"])
    assert done.bugs[0].name == "blocks.0.attn_norm.out" and "on average over all cells" in str(done.bugs[0])
    assert done.explained_by == ("variance divided by N − 1",)

"""The norms of lesson 18 keep what they promise, and its mistakes are as large as it says."""

import numpy as np
import pytest

from pellucid.learning.lessons.c_examples import l18_norms

RUNS = l18_norms.run()


def value(name: str, run: str = "layer") -> np.ndarray:
    return RUNS[run].tape[name]


def test_two_rows_with_one_pattern_have_one_output() -> None:
    assert value("norm.normed")[:2] == pytest.approx(np.array([[-1, -1, 1, 1]] * 2), abs=1e-5)
    assert value("d.x")[:2] == pytest.approx(
        np.array([[1, -1, 0.5, -0.5], [0.5, -0.5, 0.25, -0.25]]), abs=1e-4
    )


def test_the_gradient_is_the_closed_form_and_passes_both_checks() -> None:
    """With eps = 0 both sums are exactly 0; the smallest row has a variance of only ten eps."""
    x, r = value("norm.normed"), value("norm.rstd")
    assert value("d.x") == pytest.approx(r * value("bracket"))
    assert value("d.x").sum(axis=1) == pytest.approx(np.zeros(4), abs=1e-9)
    assert (value("d.x") * x)[:3].sum(axis=1) == pytest.approx(np.zeros(3), abs=1e-4)


def test_rms_norm_keeps_the_level_and_drops_the_size() -> None:
    assert abs(value("norm.normed", "rms")[0] - value("norm.normed", "rms")[1]).max() > 0.2
    assert abs(value("d.x", "rms")[1].sum()) > 0.2
    assert (value("d.x", "rms") * value("norm.normed", "rms"))[1].sum() == pytest.approx(0, abs=1e-5)


def test_two_channels_keep_a_sign_and_stop_the_gradient() -> None:
    assert value("norm.out", "pair") == pytest.approx(np.array([[1, -1], [-1, 1], [1, -1]]), abs=1e-4)
    assert abs(value("d.x", "pair")).max() < 1e-4
    assert abs(value("normed", "sample_pair")) == pytest.approx(np.full((3, 2), 0.5**0.5))


def test_larger_rows_have_the_same_output_and_a_smaller_gradient() -> None:
    assert value("norm.out", "tenfold")[:3] == pytest.approx(value("norm.out")[:3], abs=1e-4)
    assert value("d.x", "tenfold")[:3] * l18_norms.FACTOR == pytest.approx(value("d.x")[:3], abs=1e-4)


def test_batch_norm_of_a_row_depends_on_the_others() -> None:
    assert abs(value("out", "batch")[0] - value("out", "fewer")[0]).max() > 0.4
    assert value("out", "batch").mean(axis=0) == pytest.approx(np.zeros(4), abs=1e-12)


def test_another_seed_has_other_rows() -> None:
    assert not np.array_equal(l18_norms.run(seed=1)["layer"].tape["x"], l18_norms.ROWS)

"""The error of a matrix, worked out on paper."""

import numpy as np
import pytest

from pellucid.base.quantized import QuantizedWeight, Scheme, quantize
from pellucid.evaluation.quantization import bill
from pellucid.evaluation.quantization.bill import measure_matrix


def test_two_rows_of_eight_bits_by_hand() -> None:
    """Both scales are 127 / 127 = 1, so 63.4 becomes 63 and 0.3 becomes 0; the rest is exact."""
    weight = np.array([[127.0, 63.4], [-127.0, 0.3]], np.float32)
    found = measure_matrix("w", weight, quantize(weight, Scheme(8)), "int8", 8)
    assert found.largest_error == pytest.approx(0.4, abs=1e-5)
    size = np.sqrt(127.0**2 + 63.4**2 + 127.0**2 + 0.3**2)
    assert found.relative_error == pytest.approx(np.sqrt(0.4**2 + 0.3**2) / size, rel=1e-5)
    assert found.bits_per_weight == 16  # 4 numbers and 2 scales of 2 bytes each


def test_two_rows_of_four_bits_by_hand() -> None:
    """The levels of the first row are 0, 1, …, 15, of the second 0, 2, …, 30: 7.25 becomes 7, 3 becomes 4."""
    weight = np.array([[0.0, 15.0, 7.25, 1.0], [0.0, 30.0, 3.0, 2.0]], np.float32)
    found = measure_matrix("w", weight, quantize(weight, Scheme(4)), "int4", 12)
    assert found.largest_error == 0.5
    assert found.relative_error == pytest.approx(np.sqrt(0.25**2 + 1) / np.sqrt((weight**2).sum()))


def test_an_exact_matrix_has_no_error() -> None:
    weight = np.array([[127.0, -3.0], [0.0, 0.0]], np.float32)
    found = measure_matrix("w", weight, quantize(weight, Scheme(8)), "int8", 8)
    assert (found.relative_error, found.largest_error) == (0.0, 0.0)


def test_rows_that_are_measured_apart_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = np.random.default_rng(0).normal(size=(10, 64)).astype(np.float32)
    quantized = quantize(weight, Scheme(4, 32))
    whole = measure_matrix("w", weight, quantized, "int4", 0)
    monkeypatch.setattr(bill, "ROWS", 128)
    parts = measure_matrix("w", weight, quantized, "int4", 0)
    assert parts.largest_error == whole.largest_error
    assert parts.relative_error == pytest.approx(whole.relative_error, rel=1e-12)
    error = np.linalg.norm(np.asarray(quantized) - weight) / np.linalg.norm(weight)
    assert whole.relative_error == pytest.approx(error, rel=1e-5)


def test_a_matrix_without_scales_has_an_error_and_none_in_scales() -> None:
    weight = np.array([[3.0, 4.0]], np.float32)
    found = measure_matrix("w", weight, np.array([[3.0, 4.5]], np.float32), "Q4_K", 1)
    assert found.relative_error == pytest.approx(0.1) and found.largest_error is None


def test_a_scale_that_was_rounded_to_zero_has_the_smallest_as_its_unit() -> None:
    weight = np.full((1, 2), 2.0**-26, np.float32)
    zeros = QuantizedWeight(np.zeros((1, 2), np.int8), np.zeros((1, 1), np.float16), None, 2, 8)
    found = measure_matrix("w", weight, zeros, "int8", 4)
    assert (found.relative_error, found.largest_error) == (1.0, 0.25)


def test_a_matrix_of_zeros_that_stays_so_has_no_error() -> None:
    weight = np.zeros((2, 2), np.float32)
    assert measure_matrix("w", weight, quantize(weight, Scheme(8)), "int8", 8).relative_error == 0

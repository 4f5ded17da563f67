"""A quantized weight is scale · integer (+ minimum), and quantizing gives the nearest such numbers."""

import numpy as np
import pytest

from pellucid.base.errors import UsageError
from pellucid.base.quantized import QuantizedWeight, Scheme, quantize

SCHEMES = [Scheme(8), Scheme(8, 32), Scheme(4), Scheme(4, 32), Scheme(4, 64)]


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("width", [32, 64, 80, 7])
def test_no_level_is_nearer_to_a_number_than_the_one_it_got(scheme: Scheme, width: int) -> None:
    weight = draw(5, width)
    found = quantize(weight, scheme)
    numbers, scales = np.asarray(found), np.repeat(found.scales.astype(np.float32), found.group, 1)[:, :width]
    assert found.shape == (5, width) and found.integers.dtype == np.int8
    # half a step, and what rounding the largest (or the minimum) to float16 cost at the ends of the range
    assert (np.abs(numbers - weight) <= 0.5 * scales + 2**-10 * np.abs(weight).max()).all()
    lowest, highest = (-127, 127) if scheme.bits == 8 else (0, 15)
    assert found.integers.min() >= lowest and found.integers.max() <= highest


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_quantizing_again_what_is_quantized_changes_nothing(scheme: Scheme) -> None:
    once = np.asarray(quantize(draw(4, 64), scheme))
    assert np.abs(np.asarray(quantize(once, scheme)) - once).max() <= 2**-9 * np.abs(once).max()


def test_a_weight_is_the_scale_times_the_integer_plus_the_minimum() -> None:
    integers = np.arange(8, dtype=np.int8).reshape(2, 4)
    scales = np.array([[2.0, 3.0], [5.0, 0.5]], np.float16)
    minimums = np.array([[0.0, 1.0], [-1.0, 0.25]], np.float16)
    weight = QuantizedWeight(integers, scales, minimums, 2, 4)
    assert np.asarray(weight).tolist() == [[0, 2, 7, 10], [19, 24, 3.25, 3.75]]
    assert weight.take(np.array([1, 0])).dequantize().tolist() == [[19, 24, 3.25, 3.75], [0, 2, 7, 10]]
    assert weight.rows(1, 2).dequantize(np.float64).tolist() == [[19, 24, 3.25, 3.75]]
    assert (weight.shape, weight.size, weight.nbytes) == ((2, 4), 8, 4 + 16)


def test_the_last_group_may_be_shorter() -> None:
    weight = draw(3, 80)
    found = quantize(weight, Scheme(8, 64))
    assert found.scales.shape == (3, 2)
    assert np.array_equal(found.scales[:, 1], quantize(weight[:, 64:], Scheme(8)).scales[:, 0])


def test_zeros_stay_zeros() -> None:
    for scheme in SCHEMES:
        assert not np.asarray(quantize(np.zeros((2, 64), np.float32), scheme)).any()


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e20])
def test_what_float16_scales_cannot_express_is_refused(number: float) -> None:
    weight = draw(2, 32)
    weight[1, 3] = number
    for scheme in (Scheme(8), Scheme(4, 32)):
        with pytest.raises(UsageError):
            quantize(weight, scheme)


def test_schemes_are_named_and_others_refused() -> None:
    assert (Scheme.from_name("int8"), Scheme.from_name("int4")) == (Scheme(8), Scheme(4, 32))
    with pytest.raises(UsageError, match="Did you mean 'int4'"):
        Scheme.from_name("int44")
    for bits, group in ((3, None), (4, 16), (8, 40)):
        with pytest.raises(UsageError):
            Scheme(bits, group)


def test_parts_that_do_not_fit_are_refused() -> None:
    integers, scales = np.zeros((2, 64), np.int8), np.zeros((2, 2), np.float16)
    QuantizedWeight(integers, scales, scales, 32, 4)
    for parts in (
        (integers.astype(np.int16), scales, None),
        (integers, scales[:1], None),
        (integers, scales, scales[:1]),
    ):
        with pytest.raises(UsageError):
            QuantizedWeight(*parts, 32, 4)

"""Rounding to a file's types is to the nearest, and what came from a type goes back to it bit for bit."""

import numpy as np
import pytest

from pellucid.base.dtypes import decode, dtype_code, encode, promote
from pellucid.base.errors import UsageError


def test_every_bfloat16_is_widened_and_comes_back_bit_for_bit() -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    assert np.array_equal(encode(decode(every, "BF16"), "BF16", exact=True), every)


def test_every_finite_float16_is_widened_and_comes_back_bit_for_bit() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    every = every[np.isfinite(every)]
    back = encode(decode(every, "F16"), "F16", exact=True)
    assert np.array_equal(back.view(np.uint16), every.view(np.uint16))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bfloat16_is_the_nearest_of_two_neighbours_and_of_two_equally_near_the_even_one(dtype: type) -> None:
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=20_000).astype(dtype) * np.exp(rng.uniform(-80, 80, 20_000)).astype(dtype)
    below = decode(np.arange(0x3F80, 0x3F90, dtype=np.uint16), "BF16").astype(dtype)
    values = np.concatenate([drawn, below, (below[1:] + below[:-1]) / 2, -(below[1:] + below[:-1]) / 2])
    bits = encode(values, "BF16")
    chosen = decode(bits, "BF16").astype(np.float64)
    for step in (1, -1):
        other = decode((bits.astype(np.int64) + step).astype(np.uint16), "BF16").astype(np.float64)
        distance, others = np.abs(chosen - values), np.abs(other - values)
        assert (distance <= others).all()
        assert (bits[distance == others] % 2 == 0).all()


def test_float64_is_rounded_once_and_not_by_way_of_float32() -> None:
    """A little above halfway: float32 forgets the little, and halfway would go down to the even one."""
    just_above = np.array([1 + 2.0**-8 + 2.0**-40])
    assert decode(encode(just_above, "BF16"), "BF16")[0] == 1 + 2.0**-7
    assert decode(encode(just_above.astype(np.float32), "BF16"), "BF16")[0] == 1


def test_bfloat16_is_what_torch_makes_of_float32() -> None:
    import torch

    values = np.random.default_rng(1).normal(size=10_000).astype(np.float32)
    theirs = torch.from_numpy(values).to(torch.bfloat16).view(torch.uint16).numpy()
    assert np.array_equal(encode(values, "BF16"), theirs)


@pytest.mark.parametrize(("type", "value"), [("F16", 70_000.0), ("BF16", 3.4e38), ("F32", 1e39)])
def test_a_number_beyond_the_type_is_refused_and_not_made_infinite(type: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"beyond the largest of {type}"):
        encode(np.array([value]), type)


def test_infinities_and_nan_keep_their_kind() -> None:
    special = np.array([np.inf, -np.inf, np.nan, -0.0], np.float32)
    for type in ("BF16", "F16", "F64"):
        assert np.array_equal(decode(encode(special, type), type), special, equal_nan=True)
    loud = np.array([0x7F800001, 0x7FFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(decode(encode(loud, "BF16"), "BF16")).all()


def test_where_it_must_be_exact_rounding_is_refused() -> None:
    with pytest.raises(UsageError, match="no longer BF16"):
        encode(np.array([1.001], np.float32), "BF16", exact=True)


def test_types_have_two_spellings_and_a_wrong_one_gets_a_hint() -> None:
    assert dtype_code("bfloat16") == dtype_code("BF16") == "BF16"
    assert dtype_code(None) is None
    with pytest.raises(UsageError, match="bfloat16"):
        dtype_code("bfloat")
    assert promote(["F32", "F64"]) == "F64"
    assert promote(["BF16", "BF16"]) == "BF16"

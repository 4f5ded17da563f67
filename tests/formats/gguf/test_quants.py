"""Every type gives the numbers that the `gguf` package gives, bit for bit."""

import time

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf import quants as theirs
from gguf.constants import GGML_QUANT_SIZES

from pellucid.base.errors import FileError
from pellucid.formats.gguf.quants import BY_NAME, NAMES, TYPES, Type, dequantize, quantize

WIDE = [type for type in TYPES if type.name != "F64"]


@pytest.mark.parametrize("type", WIDE, ids=lambda type: type.name)
def test_any_blocks_mean_the_same_numbers_as_in_the_gguf_package(type: Type) -> None:
    """Random bytes: scales that are infinite, tiny, or no numbers are among them."""
    data = np.random.default_rng(type.code).integers(0, 256, 3000 * type.block.itemsize, np.uint8)
    with np.errstate(all="ignore"):
        wanted = theirs.dequantize(data.reshape(3000, -1), GGMLQuantizationType(type.code))
    found = dequantize(type, memoryview(data))
    assert found.dtype == np.float32
    assert np.array_equal(found.view(np.uint32), wanted.reshape(-1).view(np.uint32))


def test_sizes_codes_and_names_are_those_of_the_gguf_package() -> None:
    for type in TYPES:
        assert GGML_QUANT_SIZES[GGMLQuantizationType(type.code)] == (type.size, type.block.itemsize)
    for type_ in GGMLQuantizationType:
        assert NAMES[type_.value] == type_.name


def test_float64_stays_as_wide_as_it_is_stored() -> None:
    numbers = np.array([1 / 3, -2.5])
    assert np.array_equal(dequantize(BY_NAME["F64"], memoryview(numbers.tobytes())), numbers)


@pytest.mark.parametrize("name", ["F32", "F16", "Q8_0", "Q4_0"])
def test_written_blocks_are_those_of_the_gguf_package(name: str) -> None:
    numbers = np.random.default_rng(0).standard_normal((500, 64)).astype(np.float32)
    numbers[0] = 0
    numbers[1] = np.arange(64) / 2  # halves, which are rounded away from zero
    numbers[2] = -numbers[1]
    found = b"".join(quantize(BY_NAME[name], numbers, "w"))
    assert found == theirs.quantize(numbers, GGMLQuantizationType[name]).tobytes()


@pytest.mark.parametrize(
    ("name", "number"), [("F16", 1e5), ("Q8_0", 1e8), ("Q4_0", 1e7), ("F16", np.nan), ("F32", np.inf)]
)
def test_a_number_that_a_type_cannot_hold_is_refused(name: str, number: float) -> None:
    with pytest.raises(FileError, match="the weight w "):
        list(quantize(BY_NAME[name], np.full(32, number, np.float32), "w"))


@pytest.mark.timed
@pytest.mark.parametrize("type", WIDE, ids=lambda type: type.name)
def test_ten_million_numbers_take_little_time(type: Type) -> None:
    data = memoryview(bytes(10_240_000 // type.size * type.block.itemsize))
    start = time.perf_counter()
    dequantize(type, data)
    assert time.perf_counter() - start < 0.6

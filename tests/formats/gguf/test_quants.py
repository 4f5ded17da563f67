"""Every type gives the numbers that the `gguf` package gives, bit for bit."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf import quants as theirs
from gguf.constants import GGML_QUANT_SIZES

from pellucid.base.errors import FileError, UsageError
from pellucid.config import preset
from pellucid.formats import gguf
from pellucid.formats.gguf.quants import (
    BY_NAME,
    KINDS,
    NAMES,
    TYPES,
    Type,
    check_kind,
    dequantize,
    quantize,
    round_weights,
)
from pellucid.model import Model

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


@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0"])
def test_rounded_weights_are_those_of_a_file(tmp_path: Path, kind: str) -> None:
    sizes = {"n_layer": 1, "d_model": 64, "n_head": 2, "n_kv_head": 2, "d_head": 32, "d_ff": 96}
    config = replace(preset("gpt2"), **sizes, vocab_size=40, context_length=16)
    model = Model.from_config(config, seed=1)
    gguf.write(tmp_path / "a.gguf", model.pretrained, kind)
    stored = gguf.read(tmp_path / "a.gguf").weights
    found = round_weights(config.parameters(), model.weights, kind)
    for name in config.parameters():
        np.testing.assert_array_equal(found[name], stored[name])


def test_four_bits_leave_sixteen_numbers_in_each_block() -> None:
    weight = np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32)
    found = round_weights({"w": (3, 64)}, {"w": weight}, "Q4_0")["w"]
    assert all(len(np.unique(block)) <= 16 for block in found.reshape(-1, 32))
    assert 0 < np.abs(found - weight).max() < np.abs(weight).max() / 8


def test_a_row_that_fills_no_block_is_f16_and_a_vector_stays() -> None:
    arrays = {"w": np.full((2, 5), 0.1, np.float32), "b": np.full(5, 0.1, np.float32)}
    found = round_weights({name: array.shape for name, array in arrays.items()}, arrays, "Q8_0")
    assert (found["w"] == np.float32(np.float16(0.1))).all() and (found["b"] == arrays["b"]).all()


def test_a_type_is_named_in_either_case_and_an_unknown_one_is_refused() -> None:
    assert check_kind("q4_0") == "Q4_0" and set(KINDS) == {"F32", "F16", "Q4_0", "Q8_0"}
    with pytest.raises(UsageError, match="Q4_0"):
        check_kind("q4_k")

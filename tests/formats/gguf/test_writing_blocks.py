"""A quantized weight is written with its own integers and scales where a type has blocks for them."""

import dataclasses
from pathlib import Path
from typing import Any

import gguf as outside
import numpy as np
import pytest

from pellucid.base.errors import FileError
from pellucid.base.quantized import QuantizedWeight, Scheme, quantize
from pellucid.formats import gguf
from pellucid.formats.gguf.quants import BY_NAME, find_type, read_blocks, write_blocks
from pellucid.formats.pretrained import Pretrained
from pellucid.formats.quantizing import quantize_pretrained
from tests.formats.gguf.random_models import ARCHITECTURES, LLAMA, model
from tests.formats.gguf.test_reading_blocks import KINDS, write

PAIRS = LLAMA | {"positions": {"kind": "rope", "layout": "pairs"}}


def draw(*shape: int) -> np.ndarray[Any, np.dtype[Any]]:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def written(path: Path, made: Pretrained, **more: Any) -> dict[str, Any]:
    gguf.write(path, made, **more)
    return {tensor.name: tensor for tensor in outside.GGUFReader(path).tensors}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_blocks_that_were_read_are_written_byte_for_byte(
    architecture: str, kind: str, tmp_path: Path
) -> None:
    """Fused q, k and v share their tensor, and no row is rounded again."""
    stored = write(tmp_path / "m.gguf", architecture, kind).as_stored()
    found = written(tmp_path / "again.gguf", stored)
    for tensor in outside.GGUFReader(tmp_path / "m.gguf").tensors:
        assert found[tensor.name].tensor_type == tensor.tensor_type
        assert np.array_equal(found[tensor.name].data, tensor.data), tensor.name


@pytest.mark.parametrize(
    ("scheme", "kind"),
    [(Scheme(8), "Q8_0"), (Scheme(8, 32), "Q8_0"), (Scheme(4, 32), "Q4_1"), (Scheme(4, 64), "Q4_1")],
)
@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_the_gguf_package_reads_the_same_numbers(
    architecture: str, scheme: Scheme, kind: str, tmp_path: Path
) -> None:
    made = quantize_pretrained(model(ARCHITECTURES[architecture], architecture), scheme)
    found = written(tmp_path / "m.gguf", made)["token_embd.weight"]
    numbers = outside.quants.dequantize(found.data, found.tensor_type)
    assert found.tensor_type.name == kind
    assert np.array_equal(numbers, np.asarray(made.weights["embed.weight"]))
    assert gguf.read(tmp_path / "m.gguf").provenance.types["blocks.0.mlp.up_proj.weight"] == kind


def test_rows_reordered_for_rope_keep_their_scales(tmp_path: Path) -> None:
    made = quantize_pretrained(model(LLAMA), Scheme(4, 32))
    gguf.write(tmp_path / "m.gguf", made)
    name, back = "blocks.0.attn.q_proj.weight", gguf.read(tmp_path / "m.gguf").as_stored().weights
    plain = quantize_pretrained(model(PAIRS), Scheme(4, 32)).weights
    assert not np.array_equal(np.asarray(back[name]), np.asarray(made.weights[name]))
    assert sorted(map(tuple, np.asarray(back[name]))) == sorted(map(tuple, np.asarray(plain[name])))


@pytest.mark.parametrize("bits", [4, 5, 8])
@pytest.mark.parametrize("group", [32, 64, 96])
@pytest.mark.parametrize("has_minimums", [False, True])
def test_every_integer_goes_through_its_blocks(bits: int, group: int, has_minimums: bool) -> None:
    rng, low = np.random.default_rng(0), 0 if has_minimums else -(2 ** (bits - 1))
    if bits == 8 and has_minimums:
        return
    integers = rng.integers(low, low + 2**bits, (70, 96)).astype(np.int8)
    scales, minimums = rng.standard_normal((2, 70, -(-96 // group))).astype(np.float16)
    weight = QuantizedWeight(integers, scales, minimums if has_minimums else None, group, bits)
    type = find_type(weight)
    assert type is not None and type.name == f"Q{bits}_{int(has_minimums)}"
    data = b"".join(write_blocks(type, weight, "w"))
    found = read_blocks(type, memoryview(data), 70)
    assert np.array_equal(found.integers, integers)
    assert np.array_equal(np.asarray(found), np.asarray(weight))


def test_what_no_block_holds_is_written_as_floats(tmp_path: Path) -> None:
    assert find_type(quantize(draw(2, 48), Scheme(4, 32))) is None
    narrow = dataclasses.replace(quantize(draw(2, 96), Scheme(8)), group=96)
    assert find_type(narrow) == BY_NAME["Q8_0"]
    made = quantize_pretrained(model(LLAMA | {"d_ff": 80}), Scheme(4, 32))
    found = written(tmp_path / "m.gguf", made)
    assert found["blk.0.ffn_down.weight"].tensor_type.name == "F16"
    assert found["blk.0.ffn_up.weight"].tensor_type.name == "Q4_1"
    assert outside.GGUFReader(tmp_path / "m.gguf").fields["general.file_type"].contents() == 3


@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0"])
def test_a_type_that_is_asked_for_wins(kind: str, tmp_path: Path) -> None:
    made = quantize_pretrained(model(LLAMA), Scheme(4, 32))
    assert written(tmp_path / "m.gguf", made, kind=kind)["token_embd.weight"].tensor_type.name == kind


def test_one_of_three_fused_weights_in_floats_leaves_all_three_floats(tmp_path: Path) -> None:
    made = quantize_pretrained(
        model(ARCHITECTURES["gpt2"], "gpt2"), Scheme(8), keep=["blocks.1.attn.k_proj.*"]
    )
    found = written(tmp_path / "m.gguf", made)
    assert [found[f"blk.{layer}.attn_qkv.weight"].tensor_type.name for layer in (0, 1)] == ["Q8_0", "F16"]


def test_a_scale_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    made = quantize_pretrained(model(LLAMA), Scheme(8))
    weight = made.weights["embed.weight"]
    assert isinstance(weight, QuantizedWeight)
    scales = weight.scales.copy()
    scales[3] = np.inf
    wrong = {**made.weights, "embed.weight": dataclasses.replace(weight, scales=scales)}
    with pytest.raises(FileError, match=r"embed\.weight holds NaN or Inf"):
        gguf.write(tmp_path / "m.gguf", dataclasses.replace(made, weights=wrong))
    assert not (tmp_path / "m.gguf").exists()

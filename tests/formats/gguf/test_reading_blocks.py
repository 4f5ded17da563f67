"""A file's own blocks: integers, scales and minimums as they are stored, the numbers bit for bit the same."""

import dataclasses
import functools
import os
import tempfile
from pathlib import Path
from typing import Any

import gguf as outside
import numpy as np
import pytest
import torch

from pellucid.base.quantized import QuantizedWeight
from pellucid.engine.transformer import Transformer
from pellucid.formats import gguf
from pellucid.formats.gguf import quants, writing
from pellucid.formats.gguf.quants import BY_NAME, read_blocks
from pellucid.formats.pretrained import Pretrained
from pellucid.formats.rope_layout import in_layout
from tests.formats.gguf.random_models import ARCHITECTURES, model

KINDS = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]
SMOLLM2 = os.environ.get("PELLUCID_SMOLLM2", "")


def write(path: Path, architecture: str, kind: str) -> Pretrained:
    """Writes a tiny model, its matrices quantized by the `gguf` package, and reads it."""
    path.write_bytes(quantized_file(architecture, kind))
    return gguf.read(path)


@functools.cache
def quantized_file(architecture: str, kind: str) -> bytes:
    type = BY_NAME[kind]

    def encode(numbers: Any) -> Any:
        data = outside.quants.quantize(numbers, outside.GGMLQuantizationType(type.code))
        return np.ascontiguousarray(data).view(type.block).reshape(-1)

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setitem(writing.KINDS, kind, type.code)
        patch.setitem(quants.BY_NAME, kind, dataclasses.replace(type, encode=encode))
        gguf.write(Path(folder) / "m.gguf", model(ARCHITECTURES[architecture], architecture), kind)
        return (Path(folder) / "m.gguf").read_bytes()


def equals(found: Any, wanted: Any) -> bool:
    return bool(np.array_equal(np.asarray(found).view(np.uint32), np.asarray(wanted).view(np.uint32)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_numbers_of_blocks_are_those_of_floats(architecture: str, kind: str, tmp_path: Path) -> None:
    """Of fused q, k and v each has its own rows."""
    floats = write(tmp_path / "m.gguf", architecture, kind)
    stored = floats.as_stored()
    for name in floats.weights:
        array, weight = floats.weights[name], stored.weights[name]
        assert equals(weight, array), name
        is_matrix = array.ndim == 2 and name != "positions.weight"
        assert isinstance(weight, QuantizedWeight) == is_matrix
        if isinstance(weight, QuantizedWeight):
            assert (weight.bits, weight.group) == (BY_NAME[kind].bits, 32)
            assert (weight.minimums is not None) == kind.endswith("_1")
            low = 0 if weight.minimums is not None else -(2 ** (weight.bits - 1))
            assert low <= weight.integers.min() and weight.integers.max() < low + 2**weight.bits
    assert type(floats.weights["embed.weight"]) is np.ndarray
    assert set(stored.weights.types.values()) == {kind}  # type: ignore[attr-defined]
    assert type(stored.to_floats().weights["embed.weight"]) is np.ndarray


@pytest.mark.parametrize("kind", KINDS)
def test_any_blocks_are_kept(kind: str) -> None:
    """Random bytes: scales that are infinite, tiny, or no numbers are among them."""
    type = BY_NAME[kind]
    data = np.random.default_rng(0).integers(0, 256, 600 * type.block.itemsize, np.uint8)
    wanted = quants.dequantize(type, memoryview(data)).reshape(200, 96)
    found = np.asarray(read_blocks(type, memoryview(data), 200))
    same = np.isnan(found) & np.isnan(wanted)
    assert np.array_equal(found.view(np.uint32)[~same], wanted.view(np.uint32)[~same])


@pytest.mark.parametrize("kind", ["Q4_1", "Q5_0"])
def test_rows_reordered_for_rope_take_their_integers_and_scales_along(kind: str, tmp_path: Path) -> None:
    floats = write(tmp_path / "m.gguf", "llama", kind)
    stored = floats.as_stored()
    (_, wanted), (_, found) = (in_layout(some.config, some.weights, "halves") for some in (floats, stored))
    name = "blocks.1.attn.k_proj.weight"
    assert isinstance(found[name], QuantizedWeight)
    assert equals(found[name], wanted[name]) and not equals(found[name], floats.weights[name])
    assert equals(found["embed.weight"], wanted["embed.weight"])


def test_the_k_quants_are_widened(tmp_path: Path) -> None:
    assert BY_NAME["Q4_K"].integers is None
    gguf.write(tmp_path / "m.gguf", model(ARCHITECTURES["llama"]), "F16")
    stored = gguf.read(tmp_path / "m.gguf").as_stored()
    assert all(type(stored.weights[name]) is np.ndarray for name in stored.weights)


@torch.no_grad()
def test_the_engine_computes_the_same_logits_from_blocks(tmp_path: Path) -> None:
    floats = write(tmp_path / "m.gguf", "llama", "Q4_1")
    ids = torch.tensor([[1, 5, 9, 200]])
    found, wanted = (
        Transformer.from_weights(floats.config, some.weights)(ids) for some in (floats.as_stored(), floats)
    )
    assert torch.equal(found, wanted)


@pytest.mark.skipif(not SMOLLM2, reason="PELLUCID_SMOLLM2 names no file")
def test_a_real_model_has_the_numbers_of_the_gguf_package() -> None:
    floats = gguf.read(SMOLLM2)
    stored = floats.as_stored()
    for name in ("embed.weight", "blocks.3.mlp.up_proj.weight", "blocks.29.attn.q_proj.weight"):
        weight = stored.weights[name]
        assert isinstance(weight, QuantizedWeight)
        assert weight.bits == (8 if name == "embed.weight" else 4)
        assert equals(weight, floats.weights[name])

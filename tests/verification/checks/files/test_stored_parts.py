"""A second reader of integers, scales and minimums finds what was written, by formulas of its own."""

from pathlib import Path

import numpy as np
import pytest

from pellucid.base.quantized import QuantizedWeight, Scheme, quantize
from pellucid.formats import model_folder
from pellucid.formats.gguf.quants import BY_NAME
from pellucid.formats.quantizing import quantize_pretrained
from pellucid.verification.checks.files.file_weights import open_safetensors
from pellucid.verification.checks.files.stored_parts import (
    BLOCKS,
    quantize_again,
    read_schemes,
    read_stored,
    split_blocks,
    widen_parts,
)
from tests.formats.gguf import random_models

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_blocks_are_the_numbers_of_the_gguf_package(kind: str) -> None:
    from gguf import GGMLQuantizationType, quants

    numbers = RANDOM.standard_normal((3, 64)).astype(np.float32)
    rows = quants.quantize(numbers, GGMLQuantizationType[kind])
    parts = split_blocks(rows, BY_NAME[kind].code)
    assert parts["integers"].shape == (3, 64) and parts["scales"].shape == (3, 2)
    theirs = quants.dequantize(rows, GGMLQuantizationType[kind])
    np.testing.assert_array_equal(widen_parts(parts, 32), theirs)


def test_a_block_by_hand() -> None:
    """Scale 0.5, minimum −1, and integers 0 … 15 in the low halves, 15 … 0 in the high halves."""
    scale, minimum = (np.array([x], np.float16).view(np.uint8) for x in (0.5, -1.0))
    halves = np.array([i + 16 * (15 - i) for i in range(16)], np.uint8)
    parts = split_blocks(np.concatenate([scale, minimum, halves])[None], 3)
    assert parts["integers"][0].tolist() == [*range(16), *range(15, -1, -1)]
    assert (parts["scales"].item(), parts["minimums"].item()) == (0.5, -1.0)
    unsigned = split_blocks(np.concatenate([scale, halves])[None], 2)
    assert unsigned["integers"][0].tolist() == [*range(-8, 8), *range(7, -9, -1)]


def test_every_type_whose_blocks_are_kept_has_a_second_reader() -> None:
    assert set(BLOCKS) == {type.code for type in BY_NAME.values() if type.integers is not None}


@pytest.mark.parametrize("scheme", [Scheme(8), Scheme(4, 32), Scheme(8, 32)], ids=str)
def test_the_tensors_of_a_folder_are_the_parts_that_were_written(scheme: Scheme, tmp_path: Path) -> None:
    model = quantize_pretrained(random_models.model(random_models.GPT2), scheme, keep=["embed.weight"])
    model_folder.write(tmp_path / "model", model)
    scheme_of, tensors = read_schemes(tmp_path / "model"), open_safetensors(tmp_path / "model")
    assert scheme_of("embed.weight") is None and scheme_of("blocks.0.attn.q_proj.bias") is None
    for name, weight in model.weights.items():
        if isinstance(weight, QuantizedWeight):
            found = scheme_of(name)
            assert found == {
                "bits": scheme.bits, "group": weight.group, "minimums": weight.minimums is not None,
            }  # fmt: skip
            parts = read_stored(tensors, name, found["bits"], found["minimums"], weight.shape[1])
            assert parts.keys() == weight.parts().keys()
            for part, wanted in weight.parts().items():
                np.testing.assert_array_equal(parts[part], wanted)


@pytest.mark.parametrize("scheme", [Scheme(8), Scheme(4, 32), Scheme(8, 32), Scheme(4)], ids=str)
@pytest.mark.parametrize("width", [5, 32, 70])
def test_floats_are_quantized_again_to_the_same_parts(scheme: Scheme, width: int) -> None:
    numbers = RANDOM.standard_normal((4, width)).astype(np.float32)
    numbers[1] = 0.0
    numbers[2, :] = 0.25
    weight = quantize(numbers, scheme)
    parts = quantize_again(numbers, weight)
    assert parts.keys() == weight.parts().keys()
    for part, wanted in weight.parts().items():
        np.testing.assert_array_equal(parts[part], wanted)

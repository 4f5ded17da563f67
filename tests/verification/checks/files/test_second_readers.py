"""The second reader of GGUF headers agrees with the first, and an excerpt is a part of its file; that of
integers, scales and minimums finds what was written, by formulas of its own."""

from pathlib import Path

import numpy as np
import pytest

from pellucid.base.quantized import QuantizedWeight, Scheme, quantize
from pellucid.formats import gguf, model_folder
from pellucid.formats.gguf.container import read_container
from pellucid.formats.gguf.quants import BY_NAME
from pellucid.formats.quantizing import quantize_pretrained
from pellucid.verification.checks.files.file_weights import open_safetensors
from pellucid.verification.checks.files.second_readers import (
    BLOCKS,
    VOCABULARY,
    has_rope_scaling,
    quantize_again,
    read_header,
    read_schemes,
    read_stored,
    split_blocks,
    widen_parts,
    write_excerpt,
)
from tests.formats.gguf import random_models


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    gguf.write(path, random_models.model(random_models.LLAMA | {"positions": random_models.YARN}), "Q8_0")
    return path


def test_both_readers_find_the_same_tensors_and_keys(file: Path) -> None:
    first, second = read_container(file), read_header(file)
    assert list(first.metadata) == list(second.metadata)
    assert second.architecture == "llama" and second.scalar("llama.block_count") == 2
    assert second.scalar("tokenizer.ggml.add_bos_token") is False
    assert second.scalar("tokenizer.ggml.tokens") is None and second.scalar("missing") is None
    for name, info in first.tensors.items():
        place = second.tensors[name]
        assert (place.shape, place.type, second.start + place.offset) == (
            info.shape,
            info.type.code,
            info.start,
        )
        assert np.array_equal(first.rows(name), second.dequantize(name))
        assert np.array_equal(first.rows(name)[::3], second.dequantize(name, 3))


def test_an_excerpt_has_the_first_blocks_and_the_files_own_bytes(file: Path, tmp_path: Path) -> None:
    header = read_header(file)
    write_excerpt(header, tmp_path / "one.gguf", 1)
    part = read_header(tmp_path / "one.gguf")
    assert part.scalar("llama.block_count") == 1
    assert {name for name in header.tensors if not name.startswith("blk.1.")} == set(part.tensors)
    assert all(part.read_bytes(name) == header.read_bytes(name) for name in part.tensors)
    assert not set(VOCABULARY) & set(part.metadata)
    kept = {key: value for key, value in part.metadata.items() if key != "llama.block_count"}
    assert kept.items() <= header.metadata.items()


def test_a_widened_excerpt_opens_as_the_same_model(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "wide.gguf"
    write_excerpt(read_header(file), path, 2, vocabulary=True, widen=True)
    whole, wide = gguf.read(file), gguf.read(path)
    assert wide.config == whole.config and set(wide.provenance.types.values()) == {"F32"}
    assert all(np.array_equal(wide.weights[name], whole.weights[name]) for name in whole.weights)
    assert wide.encode("The sea") == whole.encode("The sea")


def test_scaled_frequencies_are_seen_in_keys_and_in_the_tensor_of_factors(file: Path, tmp_path: Path) -> None:
    assert has_rope_scaling(read_header(file))
    for name, positions, scaled in (("plain", "rope", False), ("llama3", random_models.LLAMA3, True)):
        path = tmp_path / f"{name}.gguf"
        gguf.write(path, random_models.model(random_models.LLAMA | {"positions": positions}), "F32")
        assert has_rope_scaling(read_header(path)) == scaled


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

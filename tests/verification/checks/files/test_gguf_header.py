"""The second reader of GGUF headers agrees with the first, and an excerpt is a part of its file."""

from pathlib import Path

import numpy as np
import pytest

from pellucid.formats import gguf
from pellucid.formats.gguf.container import read_container
from pellucid.verification.checks.files.gguf_header import (
    VOCABULARY,
    has_rope_scaling,
    read_header,
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

"""llama.cpp is the authority on a GGUF file, and a witness of our arithmetic where it reads our export."""

import sys
from pathlib import Path
from typing import Any

import pytest

import pellucid
from pellucid.formats import gguf
from pellucid.verification.checks.check import Subject
from pellucid.verification.checks.outside.llamacpp import measure_choices
from pellucid.verification.verdict import Finding
from tests.formats.gguf import random_models
from tests.model import folders

pytest.importorskip("xllamacpp")


def measure(path: Path) -> Finding:
    return measure_choices(Subject(pellucid.load(path)))


def test_a_file_is_read_as_it_is_and_a_folder_by_our_export(tmp_path: Path) -> None:
    file = measure(folders.gguf_file(tmp_path / "m.gguf"))
    folder = measure(folders.huggingface(tmp_path / "llama", "llama"))
    assert file.verdict == folder.verdict == "equal"
    assert "from the same file" in file.measured and "from our export" in folder.measured


@pytest.mark.parametrize("kind", ["Q8_0", pytest.param("F16", marks=pytest.mark.torture)])
@pytest.mark.parametrize("architecture", random_models.ARCHITECTURES)
def test_a_quantized_file_is_compared_in_float32(kind: str, architecture: str, tmp_path: Path) -> None:
    """Random models are uncertain between many tokens: with activations of 8 bits, choices would differ."""
    path = tmp_path / "m.gguf"
    gguf.write(path, random_models.model(random_models.ARCHITECTURES[architecture], architecture), kind)
    found = measure(path)
    assert found.verdict in ("equal", "noise"), found
    assert float(found.measured.partition("log-probabilities ")[2].partition(" ")[0]) < 2e-3


def test_without_the_gguf_package_a_quantized_file_is_held_to_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    for seed in range(3):
        path = tmp_path / f"{seed}.gguf"
        given = random_models.model(random_models.LLAMA)
        weights = random_models.weights(given.config, seed)
        gguf.write(path, random_models.model(random_models.LLAMA, weights=weights), "Q8_0")
        assert measure(path).verdict in ("equal", "noise")


def test_without_llama_cpp_it_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    found = measure(folders.gguf_file(tmp_path / "m.gguf"))
    assert found.verdict == "skipped" and "pip install xllamacpp" in found.measured


def test_a_large_model_is_compared_by_its_first_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Subject, "is_large", True)
    config: dict[str, Any] = random_models.LLAMA | {"n_layer": 3}
    gguf.write(tmp_path / "m.gguf", random_models.model(config), "Q8_0")
    for path in (tmp_path / "m.gguf", folders.huggingface(tmp_path / "gpt2", "gpt2", n_layer=3)):
        found = measure(path)
        assert found.verdict in ("equal", "noise") and "its first 2 blocks" in found.measured, found

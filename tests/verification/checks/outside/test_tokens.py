"""Who encodes a text as we do is named, and the authority on the file decides."""

import sys
from pathlib import Path

import pytest

import pellucid
from pellucid.formats import gguf
from pellucid.text.standard import StandardTokenizer
from pellucid.verification.checks.check import Subject
from pellucid.verification.checks.outside.tokens import measure_round_trip, measure_same_ids
from pellucid.verification.verdict import Finding
from tests.faults.loaded import with_normalizer
from tests.formats.gguf import random_models
from tests.model import folders


def measure(path: Path) -> Finding:
    return measure_same_ids(Subject(pellucid.load(path)))


def test_a_folder_is_compared_with_both_libraries(tmp_path: Path) -> None:
    found = measure(folders.huggingface(tmp_path, "llama"))
    assert found.verdict == "equal"
    assert "the tokenizers library and transformers" in found.measured


def test_of_a_gguf_file_llama_cpp_is_asked_and_the_others_read_our_export(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    found = measure(folders.gguf_file(tmp_path / "m.gguf"))
    assert found.verdict == "equal"
    assert "by llama.cpp, the tokenizers library (from our export)" in found.measured


def test_without_llama_cpp_it_says_that_the_others_read_our_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    found = measure(folders.gguf_file(tmp_path / "m.gguf"))
    assert found.verdict == "equal"
    assert "from our export" in found.measured and "pip install xllamacpp" in found.measured


def test_without_transformers_the_tokenizers_library_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folders.huggingface(tmp_path, "llama")
    monkeypatch.setitem(sys.modules, "transformers", None)
    found = measure(folder)
    assert found.verdict == "equal" and "pip install transformers" in found.measured


@pytest.mark.parametrize("form", ["folder", "gguf"])
def test_a_qwen2_tokenizer_that_transformers_splits_in_its_own_way_is_not_a_bug(
    form: str, tmp_path: Path
) -> None:
    """Their Qwen2Tokenizer cuts off each digit, whatever the file says."""
    if form == "gguf":
        pytest.importorskip("xllamacpp")
        path = tmp_path / "m.gguf"
        gguf.write(path, random_models.model(random_models.QWEN2, "qwen2"), "F32")
        assert "by llama.cpp" in measure(path).measured
        return
    folder = folders.huggingface(tmp_path / "qwen2", "qwen2")
    tokenizer = random_models.tokenizer()  # it merges 1 and 2
    assert isinstance(tokenizer, StandardTokenizer)
    (folder / "tokenizer.json").write_text(tokenizer.text)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "Qwen2Tokenizer"}')
    found = measure(folder)
    assert found.verdict == "equal"
    assert "transformers (Qwen2Tokenizer) departs" in found.measured
    assert "by the tokenizers library" in found.measured


def test_a_tokenizer_that_normalizes_agrees_and_returns_an_equal_text(tmp_path: Path) -> None:
    folder = with_normalizer(tmp_path)
    assert measure(folder).verdict == "equal"
    assert measure_round_trip(Subject(pellucid.load(folder))).verdict == "noise"


def test_a_model_without_a_tokenizer_is_skipped(tmp_path: Path) -> None:
    path = folders.gguf_file(tmp_path / "m.gguf", tokenizer=None)
    assert measure(path).measured == "it has no tokenizer"

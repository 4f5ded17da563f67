"""Tokens on screen: a space is ·, whatever the tokenizer's file writes for it."""

from pathlib import Path

import pytest

import pellucid
from pellucid.model import Model
from tests.cli.commands import Shell
from tests.model import folders


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a byte-level tokenizer."""
    return folders.huggingface(tmp_path_factory.mktemp("models") / "theirs", "llama")


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return pellucid.load(folder)


def test_a_trace_is_labelled_with_what_the_text_holds(model: Model) -> None:
    trace = model.trace("a b\né")
    assert trace.labels["t"] == ["a", "·", "b", "\\n", "\\xc3", "\\xa9"]
    assert trace.run["tokens"] == ["a", "Ġ", "b", "Ċ", "Ã", "©"]
    assert len(trace.labels["v"]) == model.config.vocab_size


def test_raw_tokens_are_those_of_the_file(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shell = Shell(capsys, monkeypatch)
    assert "t=1 · " in shell("explain", folder, "a b", "--at", "ids").out
    assert "t=1 Ġ " in shell("explain", folder, "a b", "--at", "ids", "--raw-tokens").out
    shell("trace", folder, "a b", "-o", tmp_path / "t.json")
    assert "t=1 · " in shell("explain", tmp_path / "t.json", "--at", "ids").out
    assert shell("explain", tmp_path / "t.json", "--at", "ids", "--raw-tokens").code == 2


def test_a_model_without_a_tokenizer_shows_numbers(tmp_path: Path) -> None:
    trace = pellucid.load(folders.ours(tmp_path / "mute", tokenizer=None)).trace([3, 1])
    assert trace.labels["t"] == ["3", "1"]

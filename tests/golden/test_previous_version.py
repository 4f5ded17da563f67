"""What version 0.1 wrote still opens: recipes with its keys, runs, models, adapters, tokens, traces."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.cli.commands import Shell

OLD = Path(__file__).parent / "v0.1"
CLOSE = 1e-8
"""In float64, on another processor."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with copies of the old files, where their relative paths hold."""
    for path in OLD.iterdir():
        (shutil.copytree if path.is_dir() else shutil.copy)(path, tmp_path / path.name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(capsys, monkeypatch)


def losses(log: Path) -> list[float]:
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    return [line["loss"] for line in lines if line["kind"] in ("step", "evaluation")]


def test_a_recipe_with_the_old_keys_trains_to_the_same_losses(here: Path, shell: Shell) -> None:
    done = shell("train", "recipe.toml", "--plain", "out=again")
    assert done.code == 0, done.err
    assert np.allclose(losses(here / "again/log.jsonl"), losses(OLD / "run/log.jsonl"), rtol=CLOSE)


def test_each_old_key_is_named_with_its_new_name(here: Path, shell: Shell) -> None:
    done = shell("train", "recipe.toml", "--dry-run", "out=again")
    said = done.out + done.err
    for old, new in (
        ("train.bad", "train.on_nonfinite"),
        ("train.z", "train.z_loss"),
        ("train.chunk", "train.logits_chunk"),
        ("train.record", "train.record_every"),
        ("train.recompute", "train.activation_checkpointing"),
        ("train.smoothing", "train.label_smoothing"),
        ("train.initialisation", "train.initialization"),
        ("optimizer.decay", "optimizer.weight_decay"),
    ):
        assert f"{old} is now {new}" in said


def test_an_old_run_resumes_to_the_same_losses(here: Path, shell: Shell) -> None:
    done = shell("train", "--resume", "run", "--plain")
    assert done.code == 0, done.err
    assert np.allclose(losses(here / "run/log.jsonl"), losses(OLD / "run/log.jsonl"), rtol=CLOSE)


def test_an_old_model_with_its_adapter_reads_text(here: Path, shell: Shell) -> None:
    for folder in ("model", "run"):
        assert shell("explain", folder, "The cat", "--at", "logits[t=1,v=3]").code == 0
    done = shell("inspect", "adapter")
    assert done.code in (0, 2)
    assert "adapter" in done.out + done.err


def test_an_old_tokenizer_and_its_tokens_are_read(here: Path, shell: Shell) -> None:
    assert shell("tokenizer", "encode", "tokenizer", "The cat").code == 0
    assert "104" in shell("data", "show", "tokens").out


@pytest.mark.parametrize("name", ["tiled", "linear", "muon"])
def test_an_old_trace_with_the_old_names_of_operations_replays(name: str, here: Path, shell: Shell) -> None:
    done = shell("replay", f"traces/{name}.json")
    assert done.code == 0, done.err


def test_a_value_under_its_old_name_keeps_its_axes(here: Path, shell: Shell) -> None:
    assert shell("explain", "traces/tiled.json", "--at", "surprises[t=1,v=2]").code == 0
    assert shell("explain", "traces/tiled.json", "--at", "d.surprises[t=1,v=2]").code == 0


def test_an_old_trace_replays_bit_for_bit(here: Path, shell: Shell) -> None:
    done = shell("replay", "trace.json")
    assert done.code == 0, done.err
    assert shell("explain", "trace.json", "--at", "embed.weight@1[0,0]").code == 0

"""`inspect` as a person meets it: the card, the probe, and what is asked wrongly."""

import json
import os
from pathlib import Path

import pytest

from pellucid.config import ModelConfig
from pellucid.explanation.probe import probe
from pellucid.model import Model
from tests.cli.commands import Shell
from tests.cli.test_export import save_tiny
from tests.explanation.probe.trained import TEXT, read_as, train


@pytest.fixture(autouse=True)
def home(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "110")
    return shell.home / "models"


def test_a_preset_is_inspected_without_weights(shell: Shell) -> None:
    done = shell("inspect", "gpt2")
    assert done.code == 0
    assert done.out.startswith("gpt2\nlayers ")
    assert "learned" in done.out and "124,439,808" in done.out


def test_a_model_is_inspected_by_path_and_by_name(shell: Shell, home: Path) -> None:
    save_tiny(home / "mine")
    by_name, by_path = shell("inspect", "mine").out, shell("inspect", str(home / "mine")).out
    assert by_name.splitlines()[0] == "mine: tiny"
    assert by_name.splitlines()[1:] == by_path.splitlines()[1:]
    assert "rope, base 10,000, layout halves" in by_name
    assert "F32: 20 tensors, 3,856 numbers, 15.4 kB" in by_name


def test_the_probe_shows_the_loss_with_each_wrong_choice(shell: Shell, home: Path) -> None:
    save_tiny(home / "mine")
    done = shell("inspect", "mine", "--probe", "--text", "a b c d e f")
    assert done.code == 0
    assert "nats a token over 5 tokens, in float64;\nwith one choice changed, " in done.out
    assert "RoPE layout: pairs for halves" in done.out
    assert "does not apply to this model: " in done.out and "learned positions; " in done.out


def test_the_probe_reads_what_the_vocabulary_encodes(shell: Shell) -> None:
    done = shell("inspect", "abcd", "--probe")
    assert done.code == 0 and "over 3 tokens" in done.out  # A B C D
    assert "cannot tell: it does not predict this text under any reading" in done.out


def test_a_reading_that_fits_better_is_named_and_the_command_fails(
    shell: Shell, home: Path, tmp_path: Path
) -> None:
    wrong = read_as(train(), positions={"kind": "rope", "base": 100_000.0})
    Model(wrong).save(home / "wrong")
    (tmp_path / "letters.txt").write_text(TEXT, "utf-8")
    done = shell("inspect", "wrong", "--probe", "--text", str(tmp_path / "letters.txt"))
    assert done.code == 1
    shown = " ".join(done.out.split())
    assert "another reading fits better: RoPE base: 10,000 for 100,000 (in config.json: rope_theta)" in shown
    Model(train()).save(home / "right")
    assert shell("inspect", "right", "--probe", "--text", str(tmp_path / "letters.txt")).code == 0


def test_where_nothing_can_be_probed_the_card_says_so(shell: Shell, home: Path) -> None:
    config = ModelConfig(vocab_size=7, context_length=8, n_layer=1, n_head=2, d_model=8)
    Model.from_config(config).save(home / "ids")
    done = shell("inspect", "ids", "--probe")
    assert done.code == 0 and "nothing is probed: ids has no tokenizer" in done.out
    found = json.loads(shell("inspect", "ids", "--probe", "--json").out)
    assert found["probe"] is None and "no tokenizer" in found["why"]


def test_the_card_and_the_probe_as_data_are_json(shell: Shell, home: Path) -> None:
    save_tiny(home / "mine")
    found = json.loads(shell("inspect", "mine", "--probe", "--text", "a b c d", "--json").out)
    assert found["rows"][0] == {
        "label": "architecture", "value": "pellucid", "why": found["rows"][0]["why"], "formula": "",
    }  # fmt: skip
    assert found["probe"]["tokens"] == 3
    assert all(isinstance(entry["difference"], float) for entry in found["probe"]["alternatives"])
    assert found["probe"]["verdict"] == "cannot tell"
    assert "probe" not in json.loads(shell("inspect", "gpt2", "--json").out)


def test_a_probe_that_does_not_fit_the_memory_is_refused(
    shell: Shell, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_tiny(home / "mine")
    monkeypatch.setattr(probe, "_memory", lambda: 1000)
    assert "Use a smaller model" in shell("inspect", "mine", "--probe").err


@pytest.mark.skipif("PELLUCID_SMOLLM2" not in os.environ, reason="needs the real model")
def test_the_card_of_a_real_model(shell: Shell) -> None:
    message = shell("inspect", os.environ["PELLUCID_SMOLLM2"]).out
    for words in (
        "rope, base 100,000, layout pairs", "rms_norm, eps 1e-05", "9 query heads of 64 channels",
        "134,515,008", "2 (<|im_end|>)", "Q4_1: 210 tensors", "bpe, 49,152 tokens",
    ):  # fmt: skip
        assert words in message, words

"""`inspect` as a person meets it: the card, the probe, and what is asked wrongly."""

import json
import os
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from pellucid.cli.inspect import inspect
from pellucid.config import ModelConfig
from pellucid.explanation.probe import probe
from pellucid.model import Model
from tests.cli.test_export import save_tiny
from tests.explanation.probe.trained import TEXT, read_as, train

app = typer.Typer()
app.command("inspect")(inspect)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PELLUCID_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "110")
    return tmp_path / "models"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_a_preset_is_inspected_without_weights() -> None:
    done = run("gpt2")
    assert done.exit_code == 0
    assert done.stdout.startswith("gpt2\nlayers ")
    assert "learned" in done.stdout and "124,439,808" in done.stdout


def test_a_model_is_inspected_by_path_and_by_name(home: Path) -> None:
    save_tiny(home / "mine")
    by_name, by_path = run("mine").stdout, run(str(home / "mine")).stdout
    assert by_name.splitlines()[0] == "mine: tiny"
    assert by_name.splitlines()[1:] == by_path.splitlines()[1:]
    assert "rope, base 10,000, layout halves" in by_name
    assert "F32: 20 tensors, 3,856 numbers, 15.4 kB" in by_name


def test_the_probe_shows_the_loss_with_each_wrong_choice(home: Path) -> None:
    save_tiny(home / "mine")
    done = run("mine", "--probe", "--text", "a b c d e f")
    assert done.exit_code == 0
    assert "nats a token over 5 tokens, in float64;\nwith one choice changed, " in done.stdout
    assert "RoPE layout: pairs for halves" in done.stdout
    assert "does not apply to this model: " in done.stdout and "learned positions; " in done.stdout


def test_the_probe_reads_what_the_vocabulary_encodes() -> None:
    done = run("abcd", "--probe")
    assert done.exit_code == 0 and "over 3 tokens" in done.stdout  # A B C D
    assert "cannot tell: it does not predict this text under any reading" in done.stdout


def test_a_reading_that_fits_better_is_named_and_the_command_fails(home: Path, tmp_path: Path) -> None:
    wrong = read_as(train(), positions={"kind": "rope", "base": 100_000.0})
    Model(wrong).save(home / "wrong")
    (tmp_path / "letters.txt").write_text(TEXT, "utf-8")
    done = run("wrong", "--probe", "--text", str(tmp_path / "letters.txt"))
    assert done.exit_code == 1
    shown = " ".join(done.stdout.split())
    assert "another reading fits better: RoPE base: 10,000 for 100,000 (in config.json: rope_theta)" in shown
    Model(train()).save(home / "right")
    assert run("right", "--probe", "--text", str(tmp_path / "letters.txt")).exit_code == 0


def test_where_nothing_can_be_probed_the_card_says_so(home: Path) -> None:
    config = ModelConfig(vocab_size=7, context_length=8, n_layer=1, n_head=2, d_model=8)
    Model.from_config(config).save(home / "ids")
    done = run("ids", "--probe")
    assert done.exit_code == 0 and "nothing is probed: ids has no tokenizer" in done.stdout
    found = json.loads(run("ids", "--probe", "--json").stdout)
    assert found["probe"] is None and "no tokenizer" in found["why"]


def test_what_cannot_be_probed_is_refused_before_the_card() -> None:
    done = run("abcd", "--probe", "--text", "The")
    assert done.exit_code != 0 and not done.stdout


def test_the_card_and_the_probe_as_data_are_json(home: Path) -> None:
    save_tiny(home / "mine")
    found = json.loads(run("mine", "--probe", "--text", "a b c d", "--json").stdout)
    assert found["rows"][0] == {
        "label": "architecture", "value": "pellucid", "why": found["rows"][0]["why"], "formula": "",
    }  # fmt: skip
    assert found["probe"]["tokens"] == 3
    assert all(isinstance(entry["difference"], float) for entry in found["probe"]["alternatives"])
    assert found["probe"]["verdict"] == "cannot tell"
    assert "probe" not in json.loads(run("gpt2", "--json").stdout)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gpt2", "--probe"], "gpt2 is a config-only preset"),
        (["gpt2", "--text", "a"], "--text is what the probe reads"),
        (["smollm2"], "`pellucid get smollm2`"),
        (["smolm2"], "'smollm2'"),
        (["no/such.gguf"], "no such file"),
        (["abcd", "--probe", "--text", "The"], "is not in this model's vocabulary"),
        (["."], "no config.json"),
    ],
)
def test_a_usage_error_is_reported(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert words in str(run(*arguments).exception)


def test_a_probe_that_does_not_fit_the_memory_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_tiny(home / "mine")
    monkeypatch.setattr(probe, "_memory", lambda: 1000)
    assert "Use a smaller model" in str(run("mine", "--probe").exception)


@pytest.mark.skipif("PELLUCID_SMOLLM2" not in os.environ, reason="needs the real model")
def test_the_card_of_a_real_model() -> None:
    message = run(os.environ["PELLUCID_SMOLLM2"]).stdout
    for words in (
        "rope, base 100,000, layout pairs", "rms_norm, eps 1e-05", "9 query heads of 64 channels",
        "134,515,008", "2 (<|im_end|>)", "Q4_1: 210 tensors", "bpe, 49,152 tokens",
    ):  # fmt: skip
        assert words in message, words

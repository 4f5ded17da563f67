"""Every setting is an option of a command that generates text, and is read as it is everywhere else."""

import json
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

import pellucid
from pellucid.base.errors import FileError, UsageError
from pellucid.cli.options import with_options
from pellucid.cli.sampling_options import GivenSampling
from pellucid.generation.settings.sampling import Sampling
from pellucid.generation.settings.table import SETTINGS

seen: list[GivenSampling] = []


@with_options
def write(
    prompt: Annotated[str, typer.Argument()],
    *,
    sampling: GivenSampling,
    loud: Annotated[bool, typer.Option("--loud")] = False,
) -> None:
    """Write a text."""
    assert prompt == "A B"
    seen.append(sampling)


app = typer.Typer()
app.command()(write)


def given(*line: str) -> GivenSampling:
    done = CliRunner().invoke(app, ["A B", *line], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return seen.pop()


def resolve(*line: str, generation: dict[str, Any] | None = None) -> Sampling:
    return given(*line).resolve(generation, pellucid.load("abcd").tokenizer).sampling


LINES: dict[str, dict[str, Any]] = {
    "--temperature 0.5 --top-k 5 --top-p 0.9": {"temperature": 0.5, "top_k": 5, "top_p": 0.9},
    "--min-p 0.1 --typical-p 0.9 --temperature 1": {"min_p": 0.1, "typical_p": 0.9, "temperature": 1.0},
    "--repetition-penalty 2 --presence-penalty -1": {"repetition_penalty": 2.0, "presence_penalty": -1.0},
    "--frequency-penalty 1": {"frequency_penalty": 1.0},
    "--logit-bias A=2 --logit-bias 3=-1.5": {"logit_bias": {0: 2.0, 3: -1.5}},
    "--ban-token B --ban-token 2": {"banned_tokens": (1, 2)},
    "--force-token A --stop-token D": {"forced_tokens": (0,), "stop_ids": (3,)},
    "--min-new-tokens 1 --max-new-tokens 5": {"min_new_tokens": 1, "max_new_tokens": 5},
    "--stop x\\n --stop y": {"stop": ("x\n", "y")},
    "--seed 7 -n 2 --beams 3": {"seed": 7, "n": 2, "beams": 3},
    "--length-penalty 0.5 --early-stopping": {"length_penalty": 0.5, "early_stopping": True},
    "--context roll --keep 4": {"context": "roll", "keep": 4},
    "--regex a+": {"regex": "a+"},
    "--json-schema {}": {"json_schema": "{}"},
    "--grammar stories:easy": {"grammar": "stories:easy"},
    "": {},
}


@pytest.mark.parametrize("line", LINES)
def test_an_option_is_the_setting_of_its_name(line: str) -> None:
    assert resolve(*line.split()) == Sampling(**LINES[line])


def test_every_setting_has_an_option_with_its_meaning() -> None:
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "300", "NO_COLOR": "1"}).output
    assert all(setting.meaning.rstrip(".")[:60] in text for setting in SETTINGS.values())
    assert "Sampling" in text and "--loud" in text
    assert "Write a text." in text


def test_options_go_before_the_preset_and_the_preset_before_the_models_own() -> None:
    own = {"temperature": 0.6, "top_k": 40, "repetition_penalty": 1.2}
    assert resolve("--top-k", "3", generation=own) == Sampling(
        temperature=0.6, top_k=3, repetition_penalty=1.2
    )
    sampling, origins = given("--preset", "precise", "--seed", "0").resolve(own)
    assert (sampling.temperature, sampling.top_k, sampling.seed) == (0.3, 0, 0)
    assert origins["seed"] == "option" and origins["temperature"] == "preset precise"


@pytest.mark.parametrize(
    "line",
    [
        ["--temperature", "-1"],
        ["--temperature", "nan"],
        ["-n", "1000000"],
        ["--preset", "bold"],
        ["--context", "corp"],
        ["--ban-token", "zebra"],
        ["--logit-bias", "A"],
        ["--logit-bias", "A=x"],
        ["--logit-bias", "=1"],
        ["--sampler", "top_k top_k"],
        ["--beams", "2", "--temperature", "1"],
    ],
)
def test_what_cannot_be_is_refused(line: list[str]) -> None:
    with pytest.raises(UsageError):
        resolve(*line)


def test_a_schema_may_be_in_a_file(tmp_path: Path) -> None:
    schema = json.dumps({"type": "integer"})
    (tmp_path / "a.json").write_text(schema)
    assert resolve("--json-schema", str(tmp_path / "a.json")).json_schema == schema
    with pytest.raises(FileError):
        resolve("--json-schema", str(tmp_path / "b.json"))


def test_an_option_that_changes_nothing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert resolve("--top-p", "0.9") == Sampling(top_p=0.9)
    assert capsys.readouterr().err.startswith("top_p ")
    resolve("--top-p", "0.9", "--temperature", "1", "--seed", "3")
    assert not capsys.readouterr().err


def test_the_options_of_two_samplers_are_read_apart() -> None:
    settings = given("--sampler", "one a=1 b=x", "--sampler", "two").settings
    assert settings["samplers"] == [{"kind": "one", "a": 1, "b": "x"}, {"kind": "two"}]


def test_a_sampler_is_its_kind_with_its_settings() -> None:
    wanted = Sampling(samplers=({"kind": "top_k", "top_k": 5},))
    assert resolve("--sampler", "top_k top_k=5") == wanted

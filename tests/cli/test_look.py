"""`pellucid look`: views on the terminal, in files, and as a trace that `explain` takes apart."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import Shell


def test_views_are_printed_with_their_formulas(shell: Shell) -> None:
    done = shell("look", "abcd", "A B", "--show", "attribution,attention", "--token", "C", "--head", "0.0")
    assert done.code == 0
    assert "logit = Σ_i a_i" in done.out and "entropy" in done.out


def test_a_model_is_looked_into_without_a_prompt(shell: Shell) -> None:
    for more in ((), ("--show", "heads"), ("--show", "attribution", "--trace", "t.json")):
        done = shell("look", "abcd", *more)
        assert done.code == 0 and done.out.startswith("No prompt was given, so this is about a text"), (
            done.err
        )


def test_an_attribution_can_be_taken_apart_to_the_last_product(shell: Shell) -> None:
    line = ("look", "abcd", "A B", "--show", "attribution", "--token", "C", "--trace", "t.json", "--json")
    found = json.loads(shell(*line).out)["views"][0]["data"]
    done = shell("explain", "t.json", "--at", "attribution.sum", "--json")
    assert json.loads(done.out)["value"] == pytest.approx(found["logit"], abs=1e-6)
    assert "embed.weight" in shell("explain", "t.json", "--at", "attribution.sum", "--depth", "9").out


@pytest.mark.parametrize("name", ["a.json", "a.html", "a.svg"])
def test_a_file_is_written_and_not_over_another(shell: Shell, name: str) -> None:
    line = ("look", "abcd", "A B", "--show", "attribution", "-o", name)
    assert shell(*line).code == 0
    assert shell(*line).code == 2
    assert shell(*line, "--force").code == 0


def test_several_files_are_written_at_once_and_none_twice(shell: Shell, tmp_path: Path) -> None:
    line = ("look", "abcd", "A B", "--show", "attribution", "-o", "a.json", "-o")
    done = shell(*line, "a.html")
    assert done.code == 0 and "a.json:" in done.out and "a.html:" in done.out
    assert (tmp_path / "a.json").exists() and (tmp_path / "a.html").exists()
    assert "given twice" in shell(*line, "a.json", "--force").err

"""`replay` and `explain` of a ledger: what it says, its exit code, and what does not go together."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import Shell
from tests.generation.small_ledgers import make_small_ledger


def test_a_ledger_is_replayed_and_a_changed_number_exits_with_one(shell: Shell, tmp_path: Path) -> None:
    make_small_ledger().save(tmp_path / "a.json")
    done = shell("replay", "a.json")
    assert (done.code, done.out.splitlines()[0]) == (0, "6 tokens, 6 draws, 0 mismatches (bit for bit)")
    data = json.loads((tmp_path / "a.json").read_text())
    data["completions"][0]["entries"][2]["u"] = 0.5
    (tmp_path / "a.json").write_text(json.dumps(data))
    done = shell("replay", "a.json")
    assert done.code == 1
    assert "token 3: the file says u = 0.5" in done.out


def test_a_generated_text_is_replayed_by_its_model_and_explained(shell: Shell) -> None:
    made = shell("generate", "abcd", "A B", "--temperature", "1", "--seed", "0", "--ledger-file", "a.json")
    assert made.code == 0
    done = shell("replay", "a.json", "--model", "abcd")
    assert (done.code, "computed again by the model" in done.out) == (0, True)
    done = shell("explain", "a.json", "--token", "2")
    assert done.code == 0
    assert "sampling.probability = " in done.out and "cumulative p" in done.out
    assert json.loads(shell("explain", "a.json", "--token", "2", "--json").out)["token"]["token"] == 2
    assert "--token N" in shell("explain", "a.json").out


def test_a_trace_has_no_model_to_run_again(shell: Shell) -> None:
    shell("trace", "abcd", "A B", "-o", "t.json")
    assert shell("replay", "t.json", "--model", "abcd").code == 2
    assert shell("explain", "t.json", "--token", "1").code == 2


@pytest.mark.parametrize("line", [["replay", "a.html"], ["explain", "a.html", "--token", "2"]])
def test_a_page_of_a_ledger_is_refused_with_what_to_give(shell: Shell, line: list[str]) -> None:
    make_small_ledger().save("a.html")
    done = shell(*line)
    assert done.code == 2 and "give the .json file" in done.err

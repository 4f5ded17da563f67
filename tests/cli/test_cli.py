"""The commands as a person meets them: output, exit codes, and no traceback ever."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def pellucid(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-m", "pellucid.cli", *arguments],
        capture_output=True, text=True, encoding="utf-8", cwd=cwd, env=environment, check=False,
    )  # fmt: skip


def test_explain_tells_the_story_of_a_probability() -> None:
    done = pellucid("explain", "abcd", "A B", "--at", "probs[t=1,v=2]", "--depth", "4")
    assert done.returncode == 0
    assert done.stdout.startswith("probs[t=1,v=2] = 0.32384")
    assert len(done.stdout.splitlines()) <= 40


def test_trace_and_replay_agree_and_a_changed_file_exits_with_one(tmp_path: Path) -> None:
    done = pellucid("trace", "abcd", "A B", "--target", "C", "--backward", "-o", "t.json", cwd=tmp_path)
    assert done.stdout == "t.json: 36 steps, 45 tensors\nloss 1.1275\n"
    assert pellucid("replay", "t.json", cwd=tmp_path).stdout == "36 steps, 0 mismatches (all bit for bit)\n"
    data = json.loads((tmp_path / "t.json").read_text("utf-8"))
    data["tensors"]["loss"]["values"] += 0.5
    (tmp_path / "t.json").write_text(json.dumps(data), "utf-8")
    done = pellucid("replay", "t.json", cwd=tmp_path)
    assert done.returncode == 1
    assert "1 mismatches. The first:\n  loss = einsum(nll)\n  the file says 1.6275" in done.stdout


def test_trace_of_an_update_prints_the_losses(tmp_path: Path) -> None:
    done = pellucid(
        "trace", "abcd", "A B", "--target", "C", "--update", "sgd", "--lr", "1", "--only", "unembed.weight",
        "--steps", "2", "-o", "t.json", cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "loss 1.1275 → 0.74694 → 0.51975 after 2 updates"
    after = pellucid("explain", "t.json", "--at", "probs@1", cwd=tmp_path)
    assert "0.14371  0.23876  0.47381  0.14371" in after.stdout


def test_explain_without_an_address_lists_names_and_a_preset_its_cost() -> None:
    assert "blocks.0\n  attn\n" in pellucid("explain", "abcd", "A B").stdout
    assert "124,439,808" in pellucid("explain", "gpt2").stdout


def test_json_is_json() -> None:
    cell = json.loads(pellucid("explain", "abcd", "A B", "--at", "probs[1,2]", "--json").stdout)
    assert cell["at"] == "probs[t=1,v=2]"
    whole = json.loads(pellucid("explain", "abcd", "A B", "--at", "probs", "--json").stdout)
    assert whole["shape"] == [1, 2, 4]
    names = json.loads(pellucid("explain", "abcd", "A B", "--json").stdout)
    assert {"name": "loss"}.items() <= names[-1].items() or names[-1]["name"] == "probs"
    cost = json.loads(pellucid("explain", "smollm2-135m", "--json").stdout)
    assert cost["cost"]["total"]["parameters"] == 134_515_008


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["explain", "abcd", "A X", "--at", "loss"], "the word 'X' is not in this model's vocabulary"),
        (["explain", "abcd", "A B", "--at", "prob[1,2]"], "no value called 'prob' here. Did you mean probs"),
        (["explain", "abcd", "A B", "--at", "probs[9,9]"], "t has 0…1 (A B); v has 0…3 (A B C D)"),
        (["explain", "abcd", "A B", "--at", "d.logits[0,0]"], "give --target"),
        (["explain", "abcd"], "abcd needs a prompt"),
        (["explain", "abdc", "A"], "Did you mean abcd?"),
        (["explain", "no.json"], "cannot read no.json: No such file"),
        (["explain", "abcd", "A B", "--lr", "2"], "--lr, --only and --steps belong to an update"),
        (["explain", "abcd", "A B", "--depth", "x"], "--depth"),
        (["trace", "gpt2", "A", "-o", "x.json"], "a shape without weights"),
        (["trace", "abcd", "A", "-o", "x.txt"], "use -o x.json"),
        (["trace", "abcd", "A", "-o", "no/such/x.json"], "cannot write no/such/x.json: No such file"),
        (["trace", "abcd", "A", "--backward", "-o", "x.json"], "a loss needs a target"),
        (["trace", "abcd", "A"], "--output"),
        (["replay", "no.json"], "cannot read no.json: No such file or directory"),
        (["nonsense"], "nonsense"),
    ],
)
def test_what_is_asked_wrongly_is_told_and_exits_with_two(
    arguments: list[str], words: str, tmp_path: Path
) -> None:
    done = pellucid(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_version_prints_what_a_bug_report_needs() -> None:
    out = pellucid("--version").stdout
    assert all(word in out for word in ("pellucid ", "python 3.", "numpy ", "torch ", "cores"))


def test_a_reader_that_leaves_early_is_no_error() -> None:
    """The list of names is longer than one pipe read of `head -1`."""
    command = f"{sys.executable} -m pellucid.cli explain abcd 'A B' --target C --json | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout == "[\n"
    assert done.stderr == ""


@pytest.mark.timed
@pytest.mark.parametrize("arguments", [["explain", "abcd", "A B", "--at", "probs[1,2]"], ["--help"]])
def test_a_command_without_torch_starts_within_a_third_of_a_second(arguments: list[str]) -> None:
    best = 9.9
    for _ in range(5):
        start = time.perf_counter()
        assert pellucid(*arguments).returncode == 0
        best = min(best, time.perf_counter() - start)
    assert best <= 0.35

"""The commands as a person meets them: output, exit codes, and no traceback ever."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import Shell

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
    assert "1 mismatch. The first:\n  loss = einsum(nll)\n  the file says 1.6275" in done.stdout


def test_trace_of_an_update_prints_the_losses(tmp_path: Path) -> None:
    done = pellucid(
        "trace", "abcd", "A B", "--target", "C", "--update", "sgd", "--lr", "1", "--only", "unembed.weight",
        "--steps", "2", "-o", "t.json", cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "loss 1.1275 → 0.74694 → 0.51975 after 2 updates"
    after = pellucid("explain", "t.json", "--at", "probs@1", cwd=tmp_path)
    assert "0.14371  0.23876  0.47381  0.14371" in after.stdout


def test_explain_takes_a_quantized_weight_apart(tmp_path: Path) -> None:
    at = ("--at", "blocks.0.attn.q_proj.weight[out=0,in=1]", "--weights", "int8")
    lines = pellucid("explain", "abcd", "A B", *at).stdout.splitlines()
    assert "W_Q[in,out] = s_Q[out] · q_Q[in,out]" in lines[1]
    assert any("weight.integers[out=0,in=1]" in line for line in lines)
    pellucid("trace", "abcd", "A B", "--weights", "int4", "-o", "t.json", cwd=tmp_path)
    replayed = pellucid("replay", "t.json", cwd=tmp_path)
    assert replayed.returncode == 0 and "0 mismatches (all bit for bit)" in replayed.stdout


def test_explain_without_an_address_lists_names_and_a_preset_its_cost() -> None:
    assert "blocks.0\n  attn\n" in pellucid("explain", "abcd", "A B").stdout
    assert "124,439,808" in pellucid("explain", "gpt2").stdout


def test_json_is_json() -> None:
    cell = json.loads(pellucid("explain", "abcd", "A B", "--at", "probs[1,2]", "--json").stdout)
    assert cell["at"] == "probs[t=1,v=2]"
    whole = json.loads(pellucid("explain", "abcd", "A B", "--at", "probs", "--json").stdout)
    assert whole["shape"] == [1, 2, 4]
    names = json.loads(pellucid("explain", "abcd", "A B", "--json").stdout)
    assert names[-1] == {"name": "probs", "shape": [1, 2, 4], "axes": ["b", "t", "v"], "role": "act"}
    cost = json.loads(pellucid("explain", "smollm2-135m", "--json").stdout)
    assert cost["cost"]["total"]["parameters"] == 134_515_008


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["explain", "abcd", "A X", "--at", "loss"], "the word 'X' is not in this model's vocabulary"),
        (["explain", "abcd", "A B", "--at", "prob[1,2]"], "'probs"),
        (["explain", "abcd", "A B", "--at", "probs[9,9]"], "has no t=9: t has 0…1 (A B)"),
        (["explain", "abcd", "A B", "--at", "d.logits[0,0]"], "give a target (--target)"),
        (["explain", "abcd"], "abcd needs a prompt"),
        (["explain", "abdc", "A"], "'abcd'"),
        (["explain", "no.json"], "cannot read no.json: No such file"),
        (["explain", "gpt2", "A B", "--at", "probs"], "gpt2 is a config-only preset"),
        (
            ["trace", "abcd", "A B", "--target", "C", "--update", "sgd", "--lr", "nan", "-o", "x.json"],
            "lr must be a finite number, not nan",
        ),
        (["trace", "abcd", "A", "-o", "x" * 251 + ".json"], "File name too long"),
        (["explain", "abcd", "A B", "--lr", "2"], "'lr' belongs to an update"),
        (["explain", "abcd", "A B", "--depth", "x"], "--depth"),
        (["trace", "gpt2", "A", "-o", "x.json"], "config-only"),
        (["trace", "abcd", "A", "-o", "x.txt"], "use x.json"),
        (["trace", "abcd", "A", "-o", "x"], "use x.json"),
        (["trace", "abcd", "A", "-o", ""], "the output has no name"),
        (["trace", "abcd", "A", "-o", "/"], "the output has no name"),
        (["trace", "abcd", "A", "-o", ".."], "the output has no name"),
        (["trace", "abcd", "A", "-o", "/tmp/"], "/tmp exists and is not a trace"),
        (
            ["trace", "abcd", "A", "-o", "no/such/x.json"],
            "cannot write no/such/x.json: the folder no/such does not exist",
        ),
        (["trace", "abcd", "A", "--backward", "-o", "x.json"], "a loss needs a target"),
        (["trace", "abcd", "A"], "--output"),
        (["replay", "no.json"], "cannot read no.json: No such file or directory"),
        (["nonsense"], "nonsense"),
    ],
)
def test_a_usage_error_is_reported_and_exits_with_two(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = Shell(capsys, monkeypatch)(*arguments)
    assert done.code == 2
    assert words in done.err
    assert not list(tmp_path.iterdir())


def test_version_prints_what_a_bug_report_needs() -> None:
    out = pellucid("--version").stdout
    assert all(word in out for word in ("pellucid ", "python 3.", "numpy ", "torch ", "cores"))


def test_a_reader_that_leaves_early_is_not_an_error() -> None:
    """The list of names is longer than one pipe read of `head -1`."""
    command = f"{sys.executable} -m pellucid.cli explain abcd 'A B' --target C --json | head -1"
    command += "; echo ${PIPESTATUS[0]}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout == "[\n0\n"
    assert done.stderr == ""


@pytest.mark.timed
@pytest.mark.parametrize("arguments", [["explain", "abcd", "A B", "--at", "probs[1,2]"], ["--help"]])
def test_a_command_without_torch_starts_within_a_third_of_a_second(arguments: list[str]) -> None:
    """One of some tries; on a slow machine two and a half times what it needs for Python, NumPy and typer
    alone."""
    bare = [sys.executable, "-c", "import numpy, typer.main"]
    slow = min(timed(lambda: subprocess.run(bare, check=True)) for _ in range(5))
    assert any(timed(lambda: pellucid(*arguments)) <= max(0.35, 2.5 * slow) for _ in range(10))


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        (
            ["explain", "abcd", "A B", "--at", "probs[1,2]"],
            {"torch", "tokenizers", "tiktoken", "rich.table", "importlib.metadata", "pellucid.cli.generate"},
        ),
        (["--help"], {"torch", "tokenizers", "tiktoken", "numpy"}),
    ],
)
def test_a_command_without_torch_imports_nothing_slow(arguments: list[str], unneeded: set[str]) -> None:
    """Seconds depend on the machine, and one more import hides in their spread; modules can be listed."""
    program = (
        "import sys; from pellucid.cli import main\n"
        "try: main()\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    imported = set(done.stderr.split())
    assert done.returncode == 0 and "pellucid.cli.explain" in imported
    assert not unneeded & imported


def timed(act: Callable[[], subprocess.CompletedProcess[Any]]) -> float:
    start = time.perf_counter()
    assert act().returncode == 0
    return time.perf_counter() - start


def test_a_terminal_that_cannot_write_symbols_gets_what_it_can() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "pellucid.cli", "explain", "abcd", "A B", "--at", "probs[1,2]"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0
    assert "probs[t=1,v=2] = 0.32384" in done.stdout


def test_a_full_disk_is_reported_in_one_line() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "pellucid.cli", "explain", "gpt2"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    assert done.returncode == 3
    assert done.stderr == "pellucid: No space left on device.\n"


@pytest.mark.parametrize(("arguments", "code"), [(["list", "--bad"], 2), (["inspect", "no-such-model"], 2)])
def test_an_error_that_cannot_be_printed_keeps_its_exit_code(arguments: list[str], code: int) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pellucid.cli", *arguments], stderr=full, cwd=ROOT, check=False
        )
    assert done.returncode == code


def test_an_interrupted_command_exits_with_130(tmp_path: Path) -> None:
    """Standard input never ends, so the command waits until it is interrupted."""
    command = [sys.executable, "-m", "pellucid.cli", "tokenizer", "train", "-", "-o", str(tmp_path / "never")]
    running = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    time.sleep(3)  # long enough to have started, also on a busy machine
    running.send_signal(signal.SIGINT)
    _, message = running.communicate(timeout=10)
    assert running.returncode == 130
    assert message.strip().endswith("interrupted")


def test_what_an_untrusted_trace_cannot_compute_is_reported(tmp_path: Path) -> None:
    pellucid("trace", "abcd", "A B", "-o", "t.json", cwd=tmp_path)
    data = json.loads((tmp_path / "t.json").read_text("utf-8"))
    scores = next(step for step in data["steps"] if step["out"].endswith("scores"))
    scores["op"], scores["attrs"] = "sgd", {"lr": "fast"}
    (tmp_path / "t.json").write_text(json.dumps(data), "utf-8")
    done = pellucid("explain", "t.json", "--at", "blocks.0.attn.scores[0,0]", cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot be computed again from this trace" in done.stderr


def test_a_head_is_explained_by_its_address_and_from_a_trace_by_head(tmp_path: Path) -> None:
    at = "blocks.0.attn.head_out[t=1,c=1]"
    first = pellucid("explain", "abcd", "A B", "--at", at).stdout
    assert first.startswith(f"{at} = 0.80443")
    pellucid("trace", "abcd", "A B", "--by-head", "-o", "t.json", cwd=tmp_path)
    assert pellucid("explain", "t.json", "--at", at, cwd=tmp_path).stdout == first

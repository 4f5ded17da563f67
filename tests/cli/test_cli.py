"""The commands as a person meets them: output, exit codes, and no traceback ever."""

import io
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.commands import Shell

ROOT = Path(__file__).parent.parent.parent


def test_explain_tells_the_story_of_a_probability(shell: Shell) -> None:
    done = shell("explain", "abcd", "A B", "--at", "probs[t=1,v=2]", "--depth", "4")
    assert done.code == 0
    assert done.out.startswith("probs[t=1,v=2] = 0.32384")
    assert len(done.out.splitlines()) <= 40


def test_trace_and_replay_agree_and_a_changed_file_exits_with_one(shell: Shell) -> None:
    done = shell("trace", "abcd", "A B", "--target", "C", "--backward", "-o", "t.json")
    assert done.out == "t.json: 36 steps, 45 tensors\nloss 1.1275\n"
    assert shell("replay", "t.json").out == "36 steps, 0 mismatches (all bit for bit)\n"
    data = json.loads(Path("t.json").read_text("utf-8"))
    data["tensors"]["loss"]["values"] += 0.5
    Path("t.json").write_text(json.dumps(data), "utf-8")
    done = shell("replay", "t.json")
    assert done.code == 1
    assert "1 mismatch. The first:\n  loss = einsum(nll)\n  the file says 1.6275" in done.out


def test_trace_of_an_update_prints_the_losses(shell: Shell) -> None:
    done = shell(
        "trace", "abcd", "A B", "--target", "C", "--update", "sgd", "--lr", "1", "--only", "unembed.weight",
        "--steps", "2", "-o", "t.json",
    )  # fmt: skip
    assert done.out.splitlines()[-1] == "loss 1.1275 → 0.74694 → 0.51975 after 2 updates"
    after = shell("explain", "t.json", "--at", "probs@1")
    assert "0.14371  0.23876  0.47381  0.14371" in after.out


def test_explain_takes_a_quantized_weight_apart(shell: Shell) -> None:
    at = ("--at", "blocks.0.attn.q_proj.weight[out=0,in=1]", "--weights", "int8")
    lines = shell("explain", "abcd", "A B", *at).out.splitlines()
    assert "W_Q[in,out] = s_Q[out] · q_Q[in,out]" in lines[1]
    assert any("weight.integers[out=0,in=1]" in line for line in lines)
    shell("trace", "abcd", "A B", "--weights", "int4", "-o", "t.json")
    replayed = shell("replay", "t.json")
    assert replayed.code == 0 and "0 mismatches (all bit for bit)" in replayed.out


def test_explain_without_an_address_lists_names_and_a_preset_its_cost(shell: Shell) -> None:
    assert "blocks.0\n  attn\n" in shell("explain", "abcd", "A B").out
    assert "124,439,808" in shell("explain", "gpt2").out


def test_json_is_json(shell: Shell) -> None:
    cell = json.loads(shell("explain", "abcd", "A B", "--at", "probs[1,2]", "--json").out)
    assert cell["at"] == "probs[t=1,v=2]"
    whole = json.loads(shell("explain", "abcd", "A B", "--at", "probs", "--json").out)
    assert whole["shape"] == [1, 2, 4]
    names = json.loads(shell("explain", "abcd", "A B", "--json").out)
    assert names[-1] == {"name": "probs", "shape": [1, 2, 4], "axes": ["b", "t", "v"], "role": "act"}
    cost = json.loads(shell("explain", "smollm2-135m", "--json").out)
    assert cost["cost"]["total"]["parameters"] == 134_515_008


def test_version_prints_what_a_bug_report_needs(shell: Shell) -> None:
    out = shell("--version").out
    assert all(word in out for word in ("pellucid ", "python 3.", "numpy ", "torch ", "cores"))


@pytest.mark.timed
@pytest.mark.parametrize("arguments", [["explain", "abcd", "A B", "--at", "probs[1,2]"], ["--help"]])
def test_a_command_without_torch_starts_within_a_third_of_a_second(arguments: list[str]) -> None:
    """One of some tries; on a slow machine two and a half times what it needs for Python, NumPy and typer
    alone."""
    slow = min(time_python("-c", "import numpy, typer.main") for _ in range(5))
    limit = max(0.35, 2.5 * slow)
    assert any(time_python("-m", "pellucid.cli", *arguments) <= limit for _ in range(10))


def time_python(*arguments: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], capture_output=True, check=True, cwd=ROOT)
    return time.perf_counter() - start


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


def test_what_an_untrusted_trace_cannot_compute_is_reported(shell: Shell) -> None:
    shell("trace", "abcd", "A B", "-o", "t.json")
    data = json.loads(Path("t.json").read_text("utf-8"))
    scores = next(step for step in data["steps"] if step["out"].endswith("scores"))
    scores["op"], scores["attrs"] = "sgd", {"lr": "fast"}
    Path("t.json").write_text(json.dumps(data), "utf-8")
    done = shell("explain", "t.json", "--at", "blocks.0.attn.scores[0,0]")
    assert done.code == 2
    assert "cannot be computed again from this trace" in done.err


def test_a_head_is_explained_by_its_address_and_from_a_trace_by_head(shell: Shell) -> None:
    at = "blocks.0.attn.head_out[t=1,c=1]"
    first = shell("explain", "abcd", "A B", "--at", at).out
    assert first.startswith(f"{at} = 0.80443")
    shell("trace", "abcd", "A B", "--by-head", "-o", "t.json")
    assert shell("explain", "t.json", "--at", at).out == first


def test_a_terminal_that_cannot_write_symbols_gets_what_it_can(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(out := io.BytesIO(), "ascii"))
        assert shell("explain", "abcd", "A B", "--at", "probs[1,2]").code == 0
        sys.stdout.flush()
        assert out.getvalue().startswith(b"probs[t=1,v=2] = 0.32384") and b"?" in out.getvalue()


@pytest.mark.parametrize("arguments", [["list", "--bad"], ["inspect", "no-such-model"]])
def test_an_error_that_cannot_be_printed_keeps_its_exit_code(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    with monkeypatch.context() as patch, open("/dev/full", "w") as full:
        patch.setattr(sys, "stderr", full)
        assert shell(*arguments).code == 2

"""`verify`: one line for each claim, exit code 0 where all hold, 1 where one does not, 2 where none could be
tried."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import pellucid
from pellucid.engine import transformer
from pellucid.formats import huggingface
from pellucid.formats.rope_layout import in_layout
from pellucid.text.sample import SAMPLE
from pellucid.verification.checks.catalogue import select_checks
from pellucid.verification.checks.check import Check
from pellucid.verification.checks.training.runs import CHECKS as RUN_CHECKS
from pellucid.verification.verdict import Finding, Judged, Verdict, VerifyReport
from tests.cli import container
from tests.cli.commands import Shell
from tests.faults import in_generation
from tests.formats.gguf import random_models
from tests.model import folders
from tests.training import small_run_folders
from tests.verification.checks.trained import trained

CHECKS = select_checks(quick=False)
QUICK = [check.name for check in select_checks(quick=True)]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine take minutes over a tiny model."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_json_is_one_line_for_each_check(shell: Shell) -> None:
    done = shell("verify", "abcd", "--quick", "--json")
    assert done.code == 0 and done.err == ""
    found = lines(done.out)
    assert [line["check"] for line in found] == QUICK
    for line in found:
        assert set(line) == {
            "check", "claim", "judges", "budget", "verdict", "measured", "at", "message", "seconds",
            "undecided",
        }  # fmt: skip
        assert line["verdict"] in ("equal", "noise", "skipped", "cannot tell")
        assert line["judges"] in list(Judged)
        assert line["measured"] and not line["at"]


def test_the_text_has_each_verdict_and_a_summary(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    some = container.without_numbers(select_checks(quick=True))
    monkeypatch.setattr("pellucid.verification.checks.catalogue.CHECKS", some)
    done = shell("verify", "abcd", "--quick")
    assert done.code == 0 and done.err == ""
    summary, first, *more = done.out.splitlines()
    assert first.split()[:2] == ["equal", "weights"] and len(more) == len(some) - 1
    skipped = [check.name for check in some if f"skipped       {check.name} " in done.out]
    assert "chat template" in skipped and "weights" not in skipped
    assert summary.startswith(f"abcd: no bug found. {len(some) - len(skipped)} checks in ")
    assert summary.endswith(f" s; not checked: {', '.join(skipped)}; cannot tell: conventions.")
    assert all(f" {check.name} " in done.out for check in some)


def test_details_are_shown_with_v(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.verification.checks.catalogue.CHECKS", CHECKS[:1])
    short, long = shell("verify", "abcd").out, shell("verify", "abcd", "-v").out
    assert "28 numbers" not in short and len(short.splitlines()) == 2
    assert "28 numbers  (allowed: no NaN, no Inf)" in long
    assert long.endswith(" s  judges your model and files\n") and "judges" not in short


def test_a_report_is_one_line_at_a_prompt_and_a_table_in_a_notebook() -> None:
    found = Finding(Verdict.BUG, "1 <b>", "logits", "two numbers", "made up", "a claim")
    report = VerifyReport((found, Finding(Verdict.EQUAL, "0", name="other")))
    assert repr(report).startswith("<VerifyReport: do not trust it yet.") and len(repr(report)) < 150
    html = report._repr_html_()
    assert "<table>" in html and "1 &lt;b&gt;" in html and "two numbers" in html and "<b>" not in html
    run = pellucid.compare("abcd", "abcd", "A B")
    assert repr(run).startswith("<RunReport: equal: ") and len(repr(run)) < 200
    assert "<table>" in run._repr_html_() and "blocks.0.attn.q" in run._repr_html_()


def test_weights_that_are_quantized_when_a_model_is_opened_are_verified_as_such(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = [check for check in CHECKS if check.name in ("file weights", "engine weights", "gradients")]
    monkeypatch.setattr("pellucid.verification.checks.catalogue.CHECKS", some)
    done = shell("verify", folders.ours(tmp_path / "model"), "--weights", "int4", "--json")
    found = {line["check"]: line for line in lines(done.out)}
    assert done.code == 0 and "15 of them quantized here" in found["file weights"]["measured"]
    assert found["gradients"]["verdict"] == "skipped" and "no gradient" in found["gradients"]["measured"]
    assert shell("verify", "abcd", "--weights", "int3").code == 2


def test_without_quick_every_check_is_made(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is called; what it finds is known from `tests/verification/checks/test_catalogue.py`."""
    called = [replace(check, measure=lambda subject: Finding(Verdict.EQUAL, "0")) for check in CHECKS]
    monkeypatch.setattr("pellucid.verification.checks.catalogue.CHECKS", called)
    found = lines(shell("verify", "abcd", "--json").out)
    assert [line["check"] for line in found] == [check.name for check in CHECKS]


def test_a_folder_whose_tensors_are_in_the_other_layout_exits_with_one(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a converter leaves it that forgets the permutation: it loads, and only its loss says so.

    The checks of the engine's numbers are left out: to them these are weights like any others.
    """
    monkeypatch.setattr("pellucid.verification.checks.catalogue.CHECKS", container.without_numbers(CHECKS))
    made = trained()
    _, turned = in_layout(made.config, made.weights, "pairs")
    huggingface.write(tmp_path / "broken", replace(made, weights=turned))
    (tmp_path / "known.txt").write_text((SAMPLE + "\n") * 10, "utf-8")
    done = shell("verify", tmp_path / "broken", "--quick", "--text", tmp_path / "known.txt")
    assert done.code == 1 and done.err == ""
    assert "BUG           conventions " in done.out
    assert "\n              BUG at convention: RoPE layout: pairs for halves\n" in done.out
    first, *_ = done.out.splitlines()
    assert first.startswith(f"{tmp_path / 'broken'}: do not trust it yet. ")
    named = "conventions (at convention: RoPE layout: pairs for halves)"
    assert first.endswith(f"; 1 found a bug in your model or its files: {named}.")


def test_a_nan_weight_exits_with_one(shell: Shell, tmp_path: Path) -> None:
    name = "blocks.1.mlp.up_proj.weight"
    weights = random_models.model(random_models.LLAMA).weights
    damaged = {**weights, name: weights[name].copy()}
    damaged[name][3, 5] = float("nan")
    folder = folders.ours(tmp_path / "nan", weights=damaged)
    done = shell("verify", folder, "--quick", "--json")
    assert done.code == 1
    first = lines(done.out)[0]
    assert (first["check"], first["verdict"], first["at"]) == ("weights", "BUG", name)
    assert f"{name}[3,5] is nan" in first["message"]


def test_the_checks_after_weights_that_are_not_finite_are_not_run(shell: Shell, tmp_path: Path) -> None:
    """They would blame the cache, transformers or the type of a file for what the weights are."""
    names = [f"blocks.{layer}.mlp.up_proj.weight" for layer in (0, 1)]
    weights = dict(random_models.model(random_models.LLAMA).weights)
    for name, value in zip(names, (float("inf"), float("nan")), strict=True):
        weights[name] = weights[name].copy()
        weights[name][3, 5] = value
    folder = folders.ours(tmp_path / "nan", weights=weights)
    (only,) = lines(shell("verify", folder, "--quick", "--json").out)
    assert only["check"] == "weights"
    done = shell("verify", folder, "--quick")
    assert done.code == 1
    assert done.out.count("BUG at") == 1
    assert f"not run: {len(QUICK) - 1} checks, because the weights are not finite\n" in done.out
    assert all(f"{name}[3,5] is" in done.out for name in names)


def test_the_json_of_a_bug_has_its_place_and_its_message(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Finding(Verdict.BUG, "1 [bold]", "logits[t=0]", "two\n[red]lines[/]")
    check = Check("made [up]", "a claim [with marks]", "none", lambda subject: found, Judged.MACHINE)
    monkeypatch.setattr("pellucid.verification.checks.catalogue.CHECKS", (check,))
    done = shell("verify", "abcd", "--json")
    assert done.code == 1
    (line,) = lines(done.out)
    assert (line["verdict"], line["at"], line["message"]) == ("BUG", "logits[t=0]", "two\n[red]lines[/]")
    assert line["judges"] == "this machine and build"
    text = shell("verify", "abcd").out
    assert "; 1 found a bug in this machine or its build: made [up] (at logits[t=0]).\n" in text
    assert "BUG           made [up]          a claim [with marks]\n" in text
    assert "              BUG at logits[t=0]\n              two\n              [red]lines[/]\n" in text


def damaged(folder: Path, name: str, data: bytes | None) -> Path:
    """A folder of ours with one file changed, or without it."""
    folders.ours(folder)
    if data is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("config.json", b"{"),
        ("config.json", None),
        ("model.safetensors", b"\x00" * 100),
        ("model.safetensors", None),
        ("tokenizer.json", b"[]"),
    ],
)
def test_a_damaged_folder_is_one_line_on_stderr(
    shell: Shell, tmp_path: Path, name: str, data: bytes | None
) -> None:
    done = shell("verify", damaged(tmp_path / "damaged", name, data))
    assert (done.code, done.out) == (2, "")
    assert str(tmp_path / "damaged") in done.err and done.err.count("\n") == 1


# ---- a run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "a"
    small_run_folders.trained(path, "train.dtype=float32")
    return path


def test_of_a_run_a_step_is_judged_first_and_then_its_model(
    run: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "pellucid.verification.checks.catalogue.CHECKS", [check for check in CHECKS if check.required]
    )
    found = lines(shell("verify", run, "--quick", "--json").out)
    assert [line["check"] for line in found] == [*(check.name for check in RUN_CHECKS), "weights"]
    assert "step 6, 72 tokens, by the specification" in found[4]["measured"]
    chosen = shell("verify", run, "--quick", "--step", "3", "-v")
    assert chosen.code == 0 and "step 3, 72 tokens, by the specification" in chosen.out
    assert "no bug found. 12 checks" in chosen.out


def test_a_wrong_step_exits_with_one_and_names_the_gradient(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "pellucid.verification.checks.catalogue.CHECKS", [check for check in CHECKS if check.required]
    )
    right = transformer.linear
    monkeypatch.setattr(transformer, "linear", lambda x, weight, bias: right(x, weight.detach(), bias))
    small_run_folders.trained(tmp_path / "a")
    done = shell("verify", tmp_path / "a", "--quick")
    assert done.code == 1 and "BUG at d.embed.weight\n" in done.out
    assert done.out.splitlines()[0].endswith(
        "1 found a bug in this program: step gradients (at d.embed.weight)."
    )


@pytest.mark.parametrize("step", ["7", "0", "x"])
def test_a_step_that_there_is_not_is_a_usage_error(step: str, run: Path, shell: Shell) -> None:
    assert shell("verify", run, "--step", step).code == 2


def test_a_model_has_no_step(run: Path, shell: Shell) -> None:
    done = shell("verify", run / "model", "--step", "3")
    assert done.code == 2 and "step=3 is for the folder of a run" in done.err


# ---- this program


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two checks of this program, beside one of each other kind, are in the catalogue."""
    names = ("weights", "file weights", "float32", "seeds")
    some = [check for check in CHECKS if check.name in names]
    monkeypatch.setattr("pellucid.verification.checks.catalogue.CHECKS", some)
    assert {check.judges for check in some} == set(Judged)
    return ["file weights", "seeds"]


def test_self_runs_the_checks_of_this_program_alone_on_three_models(shell: Shell, few: list[str]) -> None:
    done = shell("verify", "--self", "--quick", "--json")
    assert (done.code, done.err) == (0, "")
    found = lines(done.out)
    models = ["abcd", "random llama", "random gpt2"]
    assert [(line["model"], line["check"]) for line in found] == [(m, name) for m in models for name in few]
    assert {line["judges"] for line in found} == {"this program"}
    assert [line["verdict"] for line in found] == ["skipped", *["equal"] * 5]


def test_self_prints_each_model_and_then_one_conclusion(shell: Shell, few: list[str]) -> None:
    *parts, last = shell("verify", "--self", "-v").out.splitlines()
    assert parts[0].startswith("abcd: no bug found. 1 check in ")
    assert [line.split(":")[0] for line in parts if "no bug found" in line][1:] == [
        "random llama",
        "random gpt2",
    ]
    assert last.startswith("this program: no bug found. 5 checks in ") and last.endswith(" s.")
    assert sum(line.endswith(" s  judges this program") for line in parts) == 6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["abcd", "--self"], "on models of its own: omit abcd."),
        (["--self", "--weights", "int8", "--step", "2", "--text", "x"], "omit --weights, --step, --text."),
        (["--self", "--device", "toaster"], "the device 'toaster' cannot be used here"),
        ([], "give a MODEL to verify, or --self"),
    ],
)
def test_what_self_cannot_have_is_a_usage_error(shell: Shell, arguments: list[str], words: str) -> None:
    done = shell("verify", *arguments)
    assert (done.code, done.out) == (2, "")
    assert words in done.err and done.err.count("\n") == 1


def test_a_fault_of_this_program_is_called_one_by_self(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    some = [check for check in CHECKS if check.name in ("weights", "sampled")]
    monkeypatch.setattr("pellucid.verification.checks.catalogue.CHECKS", some)
    in_generation.temperature_is_inverted(monkeypatch)
    done = shell("verify", "--self", "--quick")
    assert done.code == 1
    last = done.out.splitlines()[-1]
    assert last.startswith("this program: do not trust it yet. ")
    assert "; 3 found a bug in this program: sampled of abcd (at sampling.temperature), sampled of " in last

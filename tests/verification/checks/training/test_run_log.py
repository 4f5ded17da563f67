"""Every figure of the log is that of its formula, and the logged validation loss that of the saved model."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pellucid.formats.checkpoint_manifest import checkpoint_name
from pellucid.training.resume import resume
from pellucid.training.saving.run_folder import RunFolder
from pellucid.verification.checks.training import run_log
from pellucid.verification.checks.training.run_log import (
    find_evaluation,
    measure_log,
    measure_validation_loss,
    recompute_log,
)
from pellucid.verification.checks.training.run_subject import RunSubject
from pellucid.verification.checks.training.runs import CHECKS
from tests.training.small_run_folders import trained
from tests.verification.checks.training.test_checkpoints import KINDS, of_text
from tests.verification.conftest import CopyRun


def judge(path: Path) -> tuple[str, str]:
    found = measure_log(RunSubject(path))
    return str(found.verdict), found.at


def rewrite(path: Path, kind: str, step: int, **changes: Any) -> None:
    lines = [json.loads(line) for line in (path / "log.jsonl").read_text().splitlines()]
    for line in lines:
        if (line["kind"], line["step"]) == (kind, step):
            line |= changes
    (path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    "changes",
    [
        ("data.path=stories:easy", "model.context_length=32", "evaluation.every=1"),
        ("schedule.kind=linear", "train.accumulate=2"),
    ],
)
def test_the_log_of_a_healthy_run_is_equal(changes: tuple[str, ...], tmp_path: Path) -> None:
    trained(tmp_path / "a", *changes)
    assert judge(tmp_path / "a") == ("equal", "")


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_and_epochs_are_those_of_the_rows(kind: str, tmp_path: Path) -> None:
    trained(tmp_path / "a", *of_text(tmp_path, kind))
    subject = RunSubject(tmp_path / "a")
    keys = {figure.key for figure in recompute_log(subject)}
    assert ("tokens" in keys) is (kind != "padded")
    assert ("epoch" in keys) is (kind in ("windows", "packed"))
    assert judge(tmp_path / "a") == ("equal", "")


def test_the_log_of_a_run_that_was_resumed_and_extended_goes_on(tmp_path: Path) -> None:
    trained(tmp_path / "a")
    folder = RunFolder(tmp_path / "a")
    with folder.lock():
        list(resume(folder, lambda _: None, changes=["steps=9"]).events())
    assert judge(tmp_path / "a") == ("equal", "")


def test_a_run_with_skipped_steps_counts_their_tokens(tmp_path: Path) -> None:
    trained(
        tmp_path / "a", "train.dtype=float32", "optimizer.kind=sgd", "optimizer.lr=1e25", "train.clip=0",
        "schedule.warmup=0",
    )  # fmt: skip
    assert judge(tmp_path / "a") == ("equal", "")


def _scaled(key: str, factor: float) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda line: {key: line[key] * factor}


@pytest.mark.parametrize(
    ("kind", "step", "key"),
    [
        ("step", 3, "lr"),
        ("step", 3, "smoothed"),
        ("step", 3, "tokens"),
        ("step", 3, "tokens_per_second"),
        ("evaluation", 4, "gap"),
        ("evaluation", 4, "learned"),
        ("end", 6, "loss"),
        ("end", 6, "best"),
    ],
)
def test_another_figure_is_named_with_its_step(
    kind: str, step: int, key: str, tmp_path: Path, copy_run: CopyRun
) -> None:
    copy_run(tmp_path / "a", "data.path=stories:easy", "model.context_length=32")
    lines = [json.loads(line) for line in (tmp_path / "a" / "log.jsonl").read_text().splitlines()]
    line = next(line for line in lines if (line["kind"], line["step"]) == (kind, step))
    rewrite(tmp_path / "a", kind, step, **_scaled(key, 1.01 if key != "tokens" else 2)(line))
    assert judge(tmp_path / "a") == ("BUG", f"{key}@{step}")


@pytest.mark.parametrize("value", [None, "1.5", [], {}])
@pytest.mark.parametrize("kind", ["step", "evaluation"])
def test_a_line_with_something_else_for_its_figures_is_passed_over(
    kind: str, value: Any, tmp_path: Path, copy_run: CopyRun
) -> None:
    copy_run(tmp_path / "a")
    keys = ("loss", "smoothed", "tokens", "seconds", "lr", "gap", "best", "accuracy", "bits_per_byte")
    rewrite(tmp_path / "a", kind, 4, **dict.fromkeys(keys, value))
    subject = RunSubject(tmp_path / "a")
    for check in CHECKS:
        if check.name in ("log figures", "next checkpoint", "validation loss"):
            assert not check.run(subject).verdict.is_failure


def test_a_figure_that_was_not_finite_or_a_log_that_is_gone_is_not_called_wrong(
    tmp_path: Path, copy_run: CopyRun
) -> None:
    copy_run(tmp_path / "a")
    rewrite(tmp_path / "a", "evaluation", 4, loss=None, gap=None)
    assert judge(tmp_path / "a")[0] == "equal"
    (tmp_path / "a" / "log.jsonl").unlink()
    found = measure_log(RunSubject(tmp_path / "a"))
    assert (found.verdict, found.measured) == ("skipped", "the run has no log")


def test_the_newest_evaluation_with_a_checkpoint_is_evaluated_again(tmp_path: Path) -> None:
    trained(tmp_path / "a", "train.ema=0.9")
    subject = RunSubject(tmp_path / "a")
    found = find_evaluation(subject)
    assert found is not None and found.step == 6
    shutil.rmtree(tmp_path / "a" / "checkpoints" / checkpoint_name(6))
    shutil.rmtree(tmp_path / "a" / "best")
    found = find_evaluation(subject)
    assert found is not None and found.step == 4
    assert measure_validation_loss(subject).verdict == "equal"


def test_without_checkpoints_it_is_the_best_model(tmp_path: Path, copy_run: CopyRun) -> None:
    copy_run(tmp_path / "a", "train.dtype=float32")
    shutil.rmtree(tmp_path / "a" / "checkpoints")
    subject = RunSubject(tmp_path / "a")
    best = subject.past.folder.read_best()
    found = find_evaluation(subject)
    assert best is not None and found is not None and found.step == best.step
    assert measure_validation_loss(subject).verdict == "noise"
    shutil.rmtree(tmp_path / "a" / "best")
    assert measure_validation_loss(subject).measured == "no logged evaluation has its checkpoint"


def test_another_loss_in_the_log_is_named(tmp_path: Path) -> None:
    trained(tmp_path / "a", "train.dtype=float32", "train.initialization=gpt2")  # losses of 2.2
    log = tmp_path / "a" / "log.jsonl"
    changed = [
        line.replace('"loss": 2.2', '"loss": 2.3') if '"evaluation"' in line else line
        for line in log.read_text().splitlines(keepends=True)
    ]
    log.write_text("".join(changed))
    finding = measure_validation_loss(RunSubject(tmp_path / "a"))
    assert (finding.verdict, finding.at) == ("BUG", "validation loss")
    assert "the log has 2.3" in finding.message and "; the model of that step has 2.2" in finding.message


def test_a_run_that_holds_out_nothing_has_no_validation_loss(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("The cat saw the birds. " * 99)
    trained(tmp_path / "a", f"data.path={tmp_path / 'text'}", "data.tokenizer=bytes", "data.validation=0")
    assert measure_validation_loss(RunSubject(tmp_path / "a")).measured == "the run holds out no text"


@pytest.mark.parametrize("cost", [9e3, 9e4])
def test_of_many_rows_the_specification_evaluates_some(
    cost: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(tmp_path / "a", "evaluation.batches=3")
    monkeypatch.setattr(run_log, "SPECIFICATION_COST", cost)
    finding = measure_validation_loss(RunSubject(tmp_path / "a"))
    assert finding.verdict == "equal" and "12 rows, " in finding.measured

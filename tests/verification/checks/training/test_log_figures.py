"""Every figure of the log is that of its formula."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pellucid.training.resume import resume
from pellucid.training.saving.run_folder import RunFolder
from pellucid.verification.checks.training import log_figures, next_checkpoint, validation_loss
from pellucid.verification.checks.training.log_figures import measure_log, recompute_log
from pellucid.verification.checks.training.run_subject import RunSubject
from tests.training.small_run_folders import trained
from tests.verification.checks.training.test_next_checkpoint import KINDS, of_text


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
def test_another_figure_is_named_with_its_step(kind: str, step: int, key: str, tmp_path: Path) -> None:
    trained(tmp_path / "a", "data.path=stories:easy", "model.context_length=32")
    lines = [json.loads(line) for line in (tmp_path / "a" / "log.jsonl").read_text().splitlines()]
    line = next(line for line in lines if (line["kind"], line["step"]) == (kind, step))
    rewrite(tmp_path / "a", kind, step, **_scaled(key, 1.01 if key != "tokens" else 2)(line))
    assert judge(tmp_path / "a") == ("BUG", f"{key}@{step}")


@pytest.mark.parametrize("value", [None, "1.5", [], {}])
@pytest.mark.parametrize("kind", ["step", "evaluation"])
def test_a_line_with_something_else_for_its_figures_is_passed_over(
    kind: str, value: Any, tmp_path: Path
) -> None:
    trained(tmp_path / "a")
    keys = ("loss", "smoothed", "tokens", "seconds", "lr", "gap", "best", "accuracy", "bits_per_byte")
    rewrite(tmp_path / "a", kind, 4, **dict.fromkeys(keys, value))
    subject = RunSubject(tmp_path / "a")
    for check in (*log_figures.CHECKS, *next_checkpoint.CHECKS, *validation_loss.CHECKS):
        assert not check.run(subject).verdict.is_failure


def test_a_figure_that_was_not_finite_or_a_log_that_is_gone_is_not_called_wrong(tmp_path: Path) -> None:
    trained(tmp_path / "a")
    rewrite(tmp_path / "a", "evaluation", 4, loss=None, gap=None)
    assert judge(tmp_path / "a")[0] == "equal"
    (tmp_path / "a" / "log.jsonl").unlink()
    found = measure_log(RunSubject(tmp_path / "a"))
    assert (found.verdict, found.measured) == ("skipped", "the run has no log")

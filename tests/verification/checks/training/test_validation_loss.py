"""The logged validation loss is that of the saved model."""

import shutil
from pathlib import Path

import pytest

from pellucid.formats.checkpoint_manifest import checkpoint_name
from pellucid.verification.checks.training import validation_loss
from pellucid.verification.checks.training.run_subject import RunSubject
from pellucid.verification.checks.training.validation_loss import find_evaluation, measure_validation_loss
from tests.training.small_run_folders import trained


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


def test_without_checkpoints_it_is_the_best_model(tmp_path: Path) -> None:
    trained(tmp_path / "a", "train.dtype=float32")
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
    monkeypatch.setattr(validation_loss, "SPECIFICATION_COST", cost)
    finding = measure_validation_loss(RunSubject(tmp_path / "a"))
    assert finding.verdict == "equal" and "12 rows, " in finding.measured

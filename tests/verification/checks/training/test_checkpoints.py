"""Training from a checkpoint to the next, without the evaluations between, has its bits; and the files of a
run are those that it wrote."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from pellucid.formats.checkpoint_manifest import checkpoint_name
from pellucid.training.resume import resume
from pellucid.training.saving.environment import get_environment
from pellucid.training.saving.run_folder import RunFolder
from pellucid.verification.checks.training import checkpoints
from pellucid.verification.checks.training.checkpoints import (
    count_place,
    find_intervals,
    measure_files,
    measure_next_checkpoint,
)
from pellucid.verification.checks.training.run_subject import RunSubject
from pellucid.verification.verdict import Finding
from tests.training.small_run_folders import trained
from tests.verification.conftest import CopyRun

TEXT = "\n\n".join(f"The cat saw {n} birds." * (1 + n % 3) for n in range(120))
DROPOUT = 'model.dropout={kind="bernoulli", embedding=0.1, pattern=0.2, hidden=0.1, output=0.2}'
KINDS = ("windows", "packed", "padded", "streams")


def of_text(folder: Path, kind: str) -> tuple[str, ...]:
    (folder / "text").write_text(TEXT)
    data = (f"data.path={folder / 'text'}", "data.tokenizer=bytes", f"data.rows={kind}")
    return *data, "data.split=paragraph", "model.context_length=24"


@pytest.mark.parametrize(
    "changes",
    [
        (),
        (DROPOUT, "train.ema=0.9", "train.accumulate=2"),
        ("train.dtype=bfloat16", "train.weights=bfloat16", "optimizer.kind=muon"),
    ],
)
def test_the_bits_of_the_next_checkpoint_are_reached_without_an_evaluation(
    changes: tuple[str, ...], tmp_path: Path
) -> None:
    trained(tmp_path / "a", *changes)
    found = measure_next_checkpoint(RunSubject(tmp_path / "a"))
    assert found.verdict == "equal", f"{found.at}: {found.message}"
    assert found.measured.startswith("2 steps to the checkpoint of step 6, without 1 evaluation: ")


def test_a_library_that_draws_when_it_is_imported_changes_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copy_run: CopyRun
) -> None:
    """No step draws from Python's own generator; a library that a screen imports did."""
    copy_run(tmp_path / "a")
    step = checkpoints.train_step
    monkeypatch.setattr(checkpoints, "train_step", lambda state: (random.random(), step(state))[1])
    assert measure_next_checkpoint(RunSubject(tmp_path / "a")).verdict == "equal"
    monkeypatch.setattr(checkpoints, "train_step", lambda state: (np.random.rand(), step(state))[1])
    found = measure_next_checkpoint(RunSubject(tmp_path / "a"))
    assert found.verdict == "BUG" and found.at == "rng.numpy"


@pytest.mark.parametrize("kind", KINDS)
def test_the_place_in_the_data_is_that_of_the_steps_made(kind: str, tmp_path: Path) -> None:
    trained(tmp_path / "a", *of_text(tmp_path, kind))
    subject = RunSubject(tmp_path / "a")
    assert measure_next_checkpoint(subject).verdict == "equal"
    rows = subject.past.source.train
    before = rows.state()
    place = count_place(rows, 5, 4)
    assert rows.state() == before and place is not None
    rows.restore(dict.fromkeys(before, 0))
    for _ in range(5):
        rows.take(4, slice(0, 4))
    assert rows.state() == place


def test_a_run_that_was_resumed_and_extended_is_equal(tmp_path: Path) -> None:
    trained(tmp_path / "a", DROPOUT)
    folder = RunFolder(tmp_path / "a")
    with folder.lock():
        list(resume(folder, lambda _: None, changes=["steps=9"]).events())
    subject = RunSubject(tmp_path / "a")
    assert sorted((one.start, one.stop) for one in find_intervals(subject)) == [
        (0, 4),
        (4, 8),
        (8, 9),
    ]
    assert measure_next_checkpoint(subject).verdict == "equal"


def test_with_one_checkpoint_the_beginning_leads_to_it(tmp_path: Path, copy_run: CopyRun) -> None:
    copy_run(tmp_path / "a")
    shutil.rmtree(tmp_path / "a" / "checkpoints" / checkpoint_name(4))
    subject = RunSubject(tmp_path / "a")
    assert [(one.start, one.stop) for one in find_intervals(subject)] == [(0, 6)]
    assert measure_next_checkpoint(subject).measured.startswith("6 steps to the checkpoint of step 6")
    shutil.rmtree(tmp_path / "a" / "checkpoints" / checkpoint_name(6))
    found = measure_next_checkpoint(RunSubject(tmp_path / "a"))
    assert (found.verdict, found.measured) == (
        "skipped",
        "the run has no checkpoint that another one leads to",
    )


def test_checkpoints_that_are_far_apart_are_not_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copy_run: CopyRun
) -> None:
    copy_run(tmp_path / "a")
    monkeypatch.setattr(checkpoints, "SECONDS", 1e-9)
    found = measure_next_checkpoint(RunSubject(tmp_path / "a"))
    assert found.verdict == "cannot tell" and "lie between two of its checkpoints" in found.measured


def test_on_another_machine_places_and_counts_are_judged_and_bits_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copy_run: CopyRun
) -> None:
    copy_run(tmp_path / "a")
    monkeypatch.setattr(checkpoints, "get_environment", lambda *_: get_environment("no") | {"threads": 99})
    subject = RunSubject(tmp_path / "a")
    found = measure_next_checkpoint(subject)
    assert found.verdict == "cannot tell" and "and is 99 now" in found.measured
    path = tmp_path / "a" / "checkpoints" / checkpoint_name(6)
    right = checkpoints.checkpoint.read
    monkeypatch.setattr(
        checkpoints.checkpoint,
        "read",
        lambda folder: right(folder)._replace(meters=right(folder).meters | {"tokens": 7}),
    )
    found = measure_next_checkpoint(subject)
    assert path.is_dir() and (found.verdict, found.at) == ("BUG", "tokens")


def test_a_bug_names_the_first_step_whose_loss_the_log_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copy_run: CopyRun
) -> None:
    copy_run(tmp_path / "a", "train.ema=0.9")
    log = tmp_path / "a" / "log.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if line["kind"] == "step" and line["step"] == 5:
            line["loss"] += 1e-9
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(checkpoints, "find_unrestored", lambda *_: "embed.weight")
    found = measure_next_checkpoint(RunSubject(tmp_path / "a"))
    assert found.verdict == "BUG" and "the loss of step 5 is" in found.message


@pytest.fixture
def run(tmp_path: Path, copy_run: CopyRun) -> Path:
    copy_run(tmp_path / "a")
    return tmp_path / "a"


def judge(run: Path) -> Finding:
    return measure_files(RunSubject(run))


def test_the_files_of_a_run_are_those_that_it_wrote(run: Path) -> None:
    found = judge(run)
    assert (found.verdict, found.measured) == ("equal", "2 checkpoints, 2 models")


def test_the_files_of_a_run_under_way_are_not_judged(run: Path) -> None:
    with RunFolder(run).lock():
        found = judge(run)
    assert found.verdict == "skipped" and "under way" in found.measured


def test_a_file_of_another_checkpoint_is_named(run: Path) -> None:
    old, new = (run / "checkpoints" / checkpoint_name(step) / "rank-0" for step in (4, 6))
    shutil.copyfile(old / "optimizer.safetensors", new / "optimizer.safetensors")
    found = judge(run)
    assert (found.verdict, found.at) == ("BUG", "checkpoints")
    assert "skipped the checkpoint of step 6" in found.message and "optimizer.safetensors" in found.message


@pytest.mark.parametrize("name", ["model", "best"])
def test_a_model_that_was_replaced_is_named(name: str, run: Path) -> None:
    other = run / "checkpoints" / checkpoint_name(4) / "model" / "model.safetensors"
    data = other.read_bytes()
    (run / name / "model.safetensors").unlink()  # it is a link to that of its checkpoint
    (run / name / "model.safetensors").write_bytes(data)
    found = judge(run)
    assert (found.verdict, found.at) == ("BUG", f"{name}/model.safetensors")
    assert "is not the file that the run wrote there at step 6" in found.message
    (run / name / "model.safetensors").unlink()
    assert "it is gone" in judge(run).message

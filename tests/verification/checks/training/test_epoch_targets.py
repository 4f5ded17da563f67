"""In an epoch each token of the training files is a target once, and the validation rows are their files."""

from pathlib import Path

import numpy as np
import pytest

from pellucid.training.resume import begin
from pellucid.training.saving.run_folder import RunFolder
from pellucid.verification.checks.training import epoch_targets
from pellucid.verification.checks.training.epoch_targets import (
    find_miscount,
    list_documents,
    measure_epoch,
    measure_validation_rows,
)
from pellucid.verification.checks.training.run_subject import RunSubject
from pellucid.verification.checks.training.training_batch import find_tokens
from tests.training import small_run_folders
from tests.training.small_run_folders import trained
from tests.verification.checks.training.test_checkpoints import KINDS, of_text


def begun(path: Path, *changes: str) -> RunSubject:
    """A run that was begun and has made no step."""
    folder = RunFolder(path)
    with folder.lock():
        begin(small_run_folders.recipe(path, *changes), folder, lambda _: None)
    return RunSubject(path)


@pytest.mark.parametrize("size", [3, 4, 50])
@pytest.mark.parametrize("kind", KINDS)
def test_each_token_of_an_epoch_is_a_target_once(kind: str, size: int, tmp_path: Path) -> None:
    subject = begun(tmp_path / "a", *of_text(tmp_path, kind), f"data.batch_size={size}")
    rows = subject.past.source.train
    before = rows.state()
    found = measure_epoch(subject)
    assert found.verdict == "equal" and rows.state() == before
    tokens = subject.past.source.train
    count = len(find_tokens(tokens))
    assert found.measured.startswith(f"{count - (kind == 'streams'):,} targets")


def test_each_text_of_a_mixture_has_its_own_epoch(tmp_path: Path) -> None:
    paths = []
    for name in ("one", "two"):
        (tmp_path / name).write_text("\n\n".join(f"The {name} cat saw {n} birds." for n in range(120)))
        paths.append(str(tmp_path / name))
    data = (f"data.path={paths}", "data.mixture_weights=[0.7, 0.3]", "data.tokenizer=bytes")
    subject = begun(tmp_path / "a", *data, "data.split=paragraph", "model.context_length=24")
    assert measure_epoch(subject).verdict == "equal"
    assert measure_validation_rows(subject).verdict == "equal"


@pytest.mark.parametrize("kind", KINDS)
def test_the_validation_rows_are_the_validation_files(kind: str, tmp_path: Path) -> None:
    subject = begun(tmp_path / "a", *of_text(tmp_path, kind))
    found = measure_validation_rows(subject)
    assert found.verdict == "equal" and "are the validation files" in found.measured


def test_a_text_that_repeats_itself_holds_out_what_it_trains_on(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("The cat saw the birds.\n\n" * 200)
    data = (f"data.path={tmp_path / 'text'}", "data.tokenizer=bytes", "model.context_length=24")
    found = measure_validation_rows(begun(tmp_path / "a", *data))
    assert found.verdict == "cannot tell" and "also in the training files" in found.measured


def test_generated_text_and_a_text_that_is_too_large_are_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generated = begun(tmp_path / "a")
    assert measure_epoch(generated).verdict == measure_validation_rows(generated).verdict == "skipped"
    subject = begun(tmp_path / "b", *of_text(tmp_path, "windows"))
    monkeypatch.setattr(epoch_targets, "COUNTED", 100)
    for measure in (measure_epoch, measure_validation_rows):
        found = measure(subject)
        assert found.verdict == "cannot tell" and "up to 100 are counted" in found.measured


def test_a_run_that_holds_out_nothing_has_no_validation_rows(tmp_path: Path) -> None:
    subject = begun(tmp_path / "a", *of_text(tmp_path, "windows"), "data.validation=0")
    assert measure_validation_rows(subject).measured == "the run holds out no text"


@pytest.mark.parametrize("bos", [None, 9])
def test_documents_are_listed_as_their_files_have_them(bos: int | None) -> None:
    class File:
        ids, ends = np.array([5, 6, 7, 8], np.uint16), np.array([2, 2, 4])

    class Files:
        shards = (File(),)

    ((ids, targets),) = list_documents(Files(), bos)  # type: ignore[arg-type]
    if bos is None:
        assert (ids.tolist(), targets.tolist()) == ([5, 7], [6, 8])
    else:
        assert (ids.tolist(), targets.tolist()) == ([9, 5, 9, 7], [5, 6, 7, 8])


@pytest.mark.parametrize(
    ("got", "wanted", "found"),
    [
        ([1, 2, 3], [1, 2, 3], None),
        ([1, 1, 3], [1, 2, 3], (0, 1, 2, 1)),
        ([1, 2], [1, 2, 3], (0, 3, 0, 1)),
        ([1, 2, 3, 3], [1, 2, 3], (0, 3, 2, 1)),
        ([2, 3], [1, 2, 3], (0, 1, 0, 1)),
    ],
)
def test_the_first_pair_that_comes_another_number_of_times_is_named(
    got: list[int], wanted: list[int], found: tuple[int, ...] | None
) -> None:
    assert find_miscount(np.array(got), np.array(wanted)) == found


def test_the_checks_of_the_data_are_made_for_a_run_of_a_text(tmp_path: Path) -> None:
    trained(tmp_path / "a", *of_text(tmp_path, "packed"), "train.dtype=bfloat16", "train.weights=bfloat16")
    subject = RunSubject(tmp_path / "a")
    from pellucid.verification.checks.training.runs import CHECKS

    verdicts = {check.name: str(check.run(subject).verdict) for check in CHECKS}
    assert {name for name, verdict in verdicts.items() if verdict == "skipped"} == {"step dropout"}

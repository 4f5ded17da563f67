"""The files of a run are those that it wrote."""

import shutil
from pathlib import Path

import pytest

from pellucid.formats.checkpoint_manifest import checkpoint_name
from pellucid.training.saving.run_folder import RunFolder
from pellucid.verification.checks.training.run_files import measure_files
from pellucid.verification.checks.training.run_subject import RunSubject
from pellucid.verification.verdict import Finding
from tests.training.small_run_folders import trained


@pytest.fixture
def run(tmp_path: Path) -> Path:
    trained(tmp_path / "a")
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

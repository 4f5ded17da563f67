"""A run that was saved once goes on for ever, and a run that was made once is made again."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import pellucid
from pellucid.formats.checkpoint_manifest import VERSION
from pellucid.training.events import Stepped
from pellucid.training.history.log import read
from pellucid.training.resume import resume
from pellucid.training.saving.run_folder import RunFolder, Status
from tests.golden.make_run import CHANGES, HALF, HERE, WHOLE
from tests.training.small_run_folders import trained

RUNS = sorted(HERE.glob("run-*"))
CLOSE, BEGUN_APART = 1e-8, 1e-4
"""In float64 on another processor; and where the first weights are drawn there as well."""


def figures(log: Path) -> np.ndarray:
    """Loss, rate and gradient norm of each step."""
    lines = [line for line in read(log) if line["kind"] == "step"]
    return np.array([[line["loss"], line["lr"], line["grad_norm"]] for line in lines])


def test_there_is_one_of_this_version() -> None:
    assert HERE / f"run-{VERSION}" in RUNS


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_run_of_every_version_goes_on_to_the_same_figures(run: Path, tmp_path: Path) -> None:
    folder = RunFolder(shutil.copytree(run, tmp_path / "run"))
    right = figures(run / "log.jsonl")
    assert folder.read_status() == Status("interrupted", HALF)
    with folder.lock():
        events = list(resume(folder, lambda _: None).events())
    assert [event.step for event in events if isinstance(event, Stepped)] == list(range(HALF + 1, WHOLE + 1))
    assert np.allclose(figures(folder.path / "log.jsonl"), right, rtol=CLOSE, atol=0)
    assert pellucid.load(folder.path / "model").config.n_layer == 1


def test_a_run_is_what_it_was(tmp_path: Path) -> None:
    """A hundred steps with accumulation and Muon: whatever changes what is computed shows."""
    trained(tmp_path / "run", *CHANGES)
    ours, right = (figures(path / "log.jsonl") for path in (tmp_path / "run", RUNS[-1]))
    assert np.allclose(ours, right, rtol=BEGUN_APART, atol=0)

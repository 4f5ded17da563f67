"""Healthy runs, trained once for each process."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.training.small_run_folders import trained

CopyRun = Callable[..., None]


@pytest.fixture(scope="session")
def copy_run(tmp_path_factory: pytest.TempPathFactory) -> CopyRun:
    """Returns a function of a new folder and changes of a recipe: it copies the run that they make there."""
    made = dict[tuple[str, ...], Path]()

    def copy(path: Path, *changes: str) -> None:
        if changes not in made:
            made[changes] = tmp_path_factory.mktemp("healthy") / "a"
            trained(made[changes], *changes)
        shutil.copytree(made[changes], path)

    return copy

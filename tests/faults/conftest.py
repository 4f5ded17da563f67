"""The subjects of the planted faults, prepared once for each process."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.faults.test_faults import prepare_in


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns the folder in which the files of a subject lie, which are written at the first call."""
    place, found = tmp_path_factory.mktemp("subjects"), dict[str, Path]()
    return lambda name: prepare_in(place, name, found)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine take minutes over a tiny model."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)

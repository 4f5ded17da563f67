"""One server for the tests of the shell, and one for those of a model that is served."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.served import Served, run_served, save_model, save_small_model
from tests.server.serving import Running, run_server


@pytest.fixture(scope="package")  # other tests count memory and fork: no thread may outlast this folder
def server() -> Iterator[Running]:
    with run_server() as running:
        yield running


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model of 11,000 parameters and a context of 128 tokens."""
    return save_model(tmp_path_factory.mktemp("tiny") / "tiny")


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model of 2.5 million parameters and a context of 512 tokens."""
    return save_small_model(tmp_path_factory.mktemp("small") / "small")


@pytest.fixture(scope="package")  # other tests count memory and fork: no thread may outlast this folder
def served(tiny_model: Path) -> Iterator[Served]:
    """The tiny model, served as `tiny` in 8 slots."""
    with run_served(tiny_model, name="tiny", slots=8) as running:
        yield running

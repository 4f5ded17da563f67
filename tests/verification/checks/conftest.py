"""The models that are verified, written once for each process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.formats.huggingface.models import FAMILIES
from tests.model import folders


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | Path]:
    place = tmp_path_factory.mktemp("models")
    return {
        "abcd": "abcd",
        **{family: folders.huggingface(place / family, family) for family in FAMILIES},
        "gguf": folders.gguf_file(place / "made-up.gguf"),
    }


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine take minutes over a tiny model."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)

"""The models that are opened, written once for each process."""

from pathlib import Path

import pytest

from tests.formats.gguf import random_models
from tests.model import folders


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("places")
    return {
        "ours": folders.ours(place / "ours"),
        "learned positions": folders.ours(place / "gpt2", random_models.GPT2),
        "without a tokenizer": folders.ours(place / "mute", tokenizer=None),
        "huggingface": folders.huggingface(place / "theirs", "llama"),
        "gguf": folders.gguf_file(place / "made-up.gguf"),
    }

"""The models that are verified, written once for each process."""

from pathlib import Path

import pytest

from tests.workbench import folders


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | Path]:
    place = tmp_path_factory.mktemp("models")
    return {
        "abcd": "abcd",
        "llama": folders.huggingface(place / "llama", "llama"),
        "gpt2": folders.huggingface(place / "gpt2", "gpt2"),
        "gguf": folders.gguf_file(place / "made-up.gguf"),
    }

"""One function opens every kind of model, and says what it takes where it cannot."""

from pathlib import Path
from types import ModuleType

import pytest

from pellucid.errors import FileError
from pellucid.interop.resolve import open_model
from tests.interop.huggingface.models import random_model


def test_a_hugging_face_folder_is_opened(tmp_path: Path) -> None:
    _, writer = random_model("gpt2", 0)
    assert open_model(writer(tmp_path / "m")).provenance.format == "huggingface"
    assert open_model(str(tmp_path / "m")).name == "m"


def test_a_gguf_file_goes_to_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    reader = ModuleType("pellucid.interop.gguf")
    reader.read = lambda path: ("read", path)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pellucid.interop.gguf", reader)
    (tmp_path / "m.gguf").touch()
    assert open_model(tmp_path / "m.gguf") == ("read", tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("", "", "has no config.json"),
        (
            "config.json",
            '{"model_type": "mamba"}',
            "model_type .*bloom, gpt2, llama.*'mamba'",
        ),
        ("config.json", "{}", "model_type .*None"),
        ("config.json", "{", "is not JSON"),
        ("config.json", '{"model_type": "gpt2", "model_type": "llama"}', "comes twice"),
        ("config.json", '{"model_type": "gpt2"}', "has no weights"),
    ],
)
def test_a_folder_that_is_not_a_model_is_refused(
    tmp_path: Path, name: str, text: str, complaint: str
) -> None:
    if name:
        (tmp_path / name).write_text(text)
    with pytest.raises(FileError, match=complaint):
        open_model(tmp_path)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("pytorch_model.bin", "`pellucid import`"),
        ("model.pt", "`pellucid import`"),
        ("model.safetensors", "give its folder"),
        ("notes.txt", "notes.txt is not a model"),
    ],
)
def test_a_file_that_is_not_a_model_is_refused(tmp_path: Path, name: str, complaint: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(FileError, match=complaint):
        open_model(tmp_path / name)


@pytest.mark.parametrize("name", ["nothing", "long" * 1000, "a\0b", "a\ud800b"])
def test_a_path_to_nothing_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileError, match="no such file"):
        open_model(tmp_path / name)


def test_opening_a_model_needs_no_torch(tmp_path: Path) -> None:
    import subprocess
    import sys

    _, writer = random_model("llama", 0)
    writer(tmp_path / "m", "bfloat16")
    script = (
        "import sys; from pellucid.interop.resolve import open_model\n"
        "total = sum(array.sum() for array in open_model(sys.argv[1]).weights.values())\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "m")], check=False)
    assert done.returncode == 0

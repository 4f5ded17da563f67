"""One function opens every kind of model, and says what it takes where it cannot."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

import pellucid
from pellucid.base.errors import FileError
from pellucid.config import preset_text
from pellucid.formats.resolve import open_model
from tests.formats.huggingface.models import random_model


def test_a_hugging_face_folder_is_opened(tmp_path: Path) -> None:
    _, writer = random_model("gpt2", 0)
    assert open_model(writer(tmp_path / "m")).provenance.format == "huggingface"
    assert open_model(str(tmp_path / "m")).short_name == "m"


def test_a_gguf_file_goes_to_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    reader = ModuleType("pellucid.formats.gguf")
    found = open_model("abcd")
    reader.read = lambda path: replace(found, generation={"read": path})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pellucid.formats.gguf", reader)
    (tmp_path / "m.gguf").touch()
    assert open_model(tmp_path / "m.gguf").generation == {"read": tmp_path / "m.gguf"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models, a library, a run and a TOML model."""
    home, model = tmp_path_factory.mktemp("home"), pellucid.load("abcd")
    run = ("runs/a/model", "runs/a/best", "runs/a/checkpoints/step-0000010/model")
    for place in ("cache/models/pocket", "m", "model", *run):
        (home / place).parent.mkdir(parents=True, exist_ok=True)
        model.save(home / place)
    (home / "runs/a/recipe.toml").write_text("")
    (home / "runs/a/checkpoints/step-0000010/manifest.json").write_text("{}")
    (home / "shapes").mkdir()
    (home / "shapes/tiny.toml").write_text(preset_text("abcd"))
    return home


@pytest.mark.parametrize(
    ("typed", "name", "short"),
    [
        ("abcd", "abcd", "abcd"),
        ("pocket", "pocket", "pocket"),
        ("HOME/cache/models/pocket", "pocket", "pocket"),
        ("m", "m", "m"),
        ("./m", "m", "m"),
        ("runs/a", "runs/a", "a"),
        ("runs/a/", "runs/a", "a"),
        ("HOME/runs/a", "HOME/runs/a", "a"),
        ("runs/a/model", "runs/a/model", "a/model"),
        ("runs/a/best", "runs/a/best", "a/best"),
        ("runs/a/checkpoints/step-0000010/model",) * 2 + ("step-0000010/model",),
        ("runs/a/model/..", "a", "a"),
        ("HOME/model", "HOME/model", "model"),
        ("HOME/shapes/tiny.toml", "HOME/shapes/tiny.toml", "tiny.toml"),
    ],
)
def test_a_model_is_called_by_what_was_typed(
    typed: str, name: str, short: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setenv("PELLUCID_HOME", str(home / "cache"))
    found = open_model(typed.replace("HOME", str(home)))
    assert found.name == name.replace("HOME", str(home))
    assert found.short_name == short
    assert found.own_name == ("tiny" if "tiny" in typed else "abcd")


def test_the_current_folder_is_called_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pellucid.load("abcd").save(tmp_path / "mine")
    monkeypatch.chdir(tmp_path / "mine")
    assert (open_model(".").name, open_model(".").short_name) == ("mine", "mine")


def test_a_name_given_in_python_is_not_a_path(tmp_path: Path) -> None:
    pellucid.load("abcd").save(tmp_path / "m")
    model = pellucid.load(tmp_path / "m").replace(name="ours/wide")
    assert model.name == model.short_name == model.pretrained.stored_name == "ours/wide"


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
        "import sys; from pellucid.formats.resolve import open_model\n"
        "total = sum(array.sum() for array in open_model(sys.argv[1]).weights.values())\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "m")], check=False)
    assert done.returncode == 0

"""`pellucid.load` opens a model by whatever people call it, and costs no more than what is asked of it."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pellucid
from pellucid.base.errors import ConfigError, FileError
from pellucid.config import preset_text
from pellucid.model import Model
from tests.formats.huggingface.models import random_model
from tests.model import folders

Places = dict[str, Path]


def same(a: Model, b: Model) -> bool:
    ids = [3, 1, 2, 1, 0]
    return a.config == b.config and bool((a.logits(ids) == b.logits(ids)).all())


@pytest.mark.parametrize("kind", ["ours", "huggingface", "gguf"])
def test_a_path_is_opened_whatever_is_there(kind: str, places: Places) -> None:
    model = pellucid.load(places[kind])
    assert set(model.weights) == set(model.config.parameters())
    assert model.name
    assert same(model, pellucid.load(str(places[kind])))


def test_a_huggingface_folder_is_the_model_that_was_saved(places: Places) -> None:
    theirs, _ = random_model("llama", 0, **folders.SIZES["llama"])
    saved = theirs.model.embed_tokens.weight.detach().numpy()
    assert np.array_equal(pellucid.load(places["huggingface"]).weights["embed.weight"], saved)


def test_a_toml_file_and_a_name_that_comes_with_us(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(preset_text("abcd"), "utf-8")
    assert same(pellucid.load(tmp_path / "mine.toml"), pellucid.load("abcd"))


def test_a_name_is_looked_up_in_the_library(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PELLUCID_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="'mine' is not a model"):
        pellucid.load("mine")
    shutil.copytree(places["ours"], tmp_path / "models" / "mine")
    shutil.copy(places["gguf"], tmp_path / "models" / "yours.gguf")
    shutil.copytree(places["huggingface"], tmp_path / "models" / "org--name")
    assert same(pellucid.load("mine"), pellucid.load(places["ours"]))
    assert same(pellucid.load("yours"), pellucid.load(places["gguf"]))
    assert same(pellucid.load("hf:org/name"), pellucid.load(places["huggingface"]))
    with pytest.raises(ConfigError, match=r"'yuors' is not a model.*'yours'"):
        pellucid.load("yuors")
    with pytest.raises(FileError, match="`pellucid get hf:org/other`"):
        pellucid.load("hf:org/other")


def test_a_folder_comes_before_a_name(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(places["ours"], tmp_path / "abcd")
    monkeypatch.chdir(tmp_path)
    assert pellucid.load("abcd").config == pellucid.load(places["ours"]).config


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_the_fast_engine_is_in_the_dtype_asked_for(places: Places, dtype: str) -> None:
    model = pellucid.load(places["ours"], dtype=dtype)
    assert str(model.module.dtype) == str(model.logits([1]).dtype) == f"torch.{dtype}"
    assert not model.module.training


def test_torch_is_imported_for_the_fast_engine_alone_and_never_its_compiler_or_triton(places: Places) -> None:
    """The compiler takes longer than all of the engine."""
    script = f"""
import sys, pellucid
for path in {[str(places[name]) for name in ("ours", "huggingface", "gguf")]!r}:
    model = pellucid.load(path)
    model.config, model.tokenizer.encode("the cat"), model.encode("the"), model.eos_ids
    assert model.trace("the cat", target="s").tape["loss"] > 0
    assert str(model.explain("the cat", "probs[t=1,v=2]", depth=1))
    assert model.weights["embed.weight"].size
    model.pretrained
assert "torch" not in sys.modules
model.logits([1]), model.generate([1], 2)
assert "torch" in sys.modules and not {{"torch._dynamo", "triton"}} & {{*sys.modules}}
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["a" * 5000, "a/" * 3000, "a" * 5000 + ".toml", "a" * 5000 + ".gguf"])
def test_a_name_that_no_file_can_have_is_reported_in_few_words(name: str) -> None:
    with pytest.raises((ConfigError, FileError)) as message:
        pellucid.load(name)
    assert len(str(message.value)) < 1000


def test_an_empty_name_is_not_the_folder_one_stands_in(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(places["ours"])
    assert pellucid.load(".").name
    with pytest.raises(ConfigError, match="name is empty"):
        pellucid.load("")

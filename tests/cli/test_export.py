"""`export` and `import`: what is written opens again, and nothing is overwritten unasked."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.base.quantized import Scheme
from pellucid.config import ModelConfig
from pellucid.formats import huggingface, model_folder
from pellucid.formats.pretrained import Pretrained, Provenance
from pellucid.formats.quantizing import quantize_pretrained
from pellucid.formats.resolve import open_model
from pellucid.text.tokenizer import Special
from pellucid.text.word_level import WordTokenizer
from tests.cli.commands import Shell

CONFIG = ModelConfig(
    vocab_size=8, context_length=16, n_layer=2, n_head=4, n_kv_head=2, d_model=16, d_ff=22, d_head=4
)
WORDS = WordTokenizer(("<s>", "</s>", *"abcdef"), Special(bos="<s>", eos="</s>"))


def tiny() -> Pretrained:
    rng = np.random.default_rng(3)
    shapes = CONFIG.parameters().items()
    weights = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes}
    return Pretrained("tiny", CONFIG, weights, WORDS, Provenance(Path("tiny"), "made up", "llama", {}, 0))


def save_tiny(folder: Path, **more: Any) -> Pretrained:
    folder.parent.mkdir(parents=True, exist_ok=True)
    model_folder.write(folder, tiny(), **more)
    return tiny()


@pytest.mark.parametrize(("to", "is_said"), [("hf", True), ("pellucid", False)])
def test_quantized_weights_are_floats_for_hugging_face_and_it_is_said(
    shell: Shell, to: str, is_said: bool, tmp_path: Path
) -> None:
    model_folder.write(tmp_path / "m", quantize_pretrained(tiny(), Scheme(8)))
    done = shell("export", str(tmp_path / "m"), "--to", to, "-o", str(tmp_path / "out"))
    assert done.code == 0 and ("15 quantized weights written as float32" in done.out) == is_said
    found, wanted = (open_model(tmp_path / name).weights for name in ("out", "m"))
    assert all(np.array_equal(np.asarray(found[name]), np.asarray(wanted[name])) for name in wanted)


@pytest.mark.parametrize("to", ["hf", "pellucid"])
@pytest.mark.parametrize(("dtype", "error"), [("float32", 0.0), ("float16", 2**-11), ("bfloat16", 2**-8)])
def test_an_exported_folder_opens_again_with_the_same_numbers(
    shell: Shell, tmp_path: Path, to: str, dtype: str, error: float
) -> None:
    given = save_tiny(tmp_path / "tiny")
    out = tmp_path / "made" / "out"
    done = shell("export", str(tmp_path / "tiny"), "--to", to, "-o", str(out), "--dtype", dtype)
    assert done.code == 0, done.err
    type = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}[dtype]
    family = "llama" if to == "hf" else "pellucid"
    assert done.out.startswith(f"{out}: {family}, ")
    assert done.out.endswith(f" kB, 3,856 parameters in 20 tensors (20 {type})\n")
    assert done.out.count("\n") == 1
    made = open_model(out)
    assert made.config == given.config
    for name, weight in given.weights.items():
        assert np.all(abs(made.weights[name] - weight) <= error * abs(weight) + 1e-7 * bool(error))


def test_a_gguf_file_opens_again_with_the_same_numbers(shell: Shell, tmp_path: Path) -> None:
    """Words are no vocabulary that llama.cpp knows, so they stay behind when asked to."""
    given = save_tiny(tmp_path / "tiny")
    out = tmp_path / "tiny.gguf"
    asked = ["export", str(tmp_path / "tiny"), "--to", "gguf", "-o", str(out), "--type", "F32"]
    assert "without its tokenizer" in shell(*asked).err
    assert not out.exists()
    done = shell(*asked, "--no-tokenizer")
    assert done.code == 0, done.err
    assert done.out.endswith("3,856 parameters in 20 tensors (20 F32)\n")
    made = open_model(out)
    assert made.config.n_kv_head == 2
    assert np.array_equal(made.weights["embed.weight"], given.weights["embed.weight"])
    assert "--force replaces it" in shell(*asked, "--no-tokenizer").err
    assert shell(*asked, "--no-tokenizer", "--force").code == 0


def test_a_teaching_model_can_be_exported(shell: Shell, tmp_path: Path) -> None:
    done = shell("export", "abcd", "--to", "pellucid", "-o", str(tmp_path / "abcd"))
    assert "28 parameters in 5 tensors (5 F64)" in done.out
    assert open_model(tmp_path / "abcd").tokenizer.encode("A B") == [0, 1]  # type: ignore[union-attr]


def test_nothing_is_overwritten_unasked_and_only_models_when_asked(shell: Shell, tmp_path: Path) -> None:
    save_tiny(tmp_path / "tiny")
    (tmp_path / "out").mkdir()  # an empty folder is free
    asked = ["export", str(tmp_path / "tiny"), "--to", "pellucid", "-o", str(tmp_path / "out")]
    assert shell(*asked).code == 0
    before = (tmp_path / "out" / "model.safetensors").read_bytes()
    assert "--force replaces it" in shell(*asked, "--dtype", "float16").err
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == before
    assert shell(*asked, "--dtype", "float16", "--force").code == 0
    assert len((tmp_path / "out" / "model.safetensors").read_bytes()) < len(before)
    (tmp_path / "out" / "diary.txt").write_text("dear")
    assert "it holds diary.txt" in shell(*asked, "--force").err
    assert (tmp_path / "out" / "diary.txt").read_text() == "dear"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_model_can_replace_itself(shell: Shell, tmp_path: Path) -> None:
    given = save_tiny(tmp_path / "tiny")
    here = str(tmp_path / "tiny")
    assert shell("export", here, "--to", "hf", "-o", here, "--force").code == 0
    made = open_model(here)
    assert made.provenance.architecture == "llama"
    assert all(np.array_equal(made.weights[name], weight) for name, weight in given.weights.items())


def test_an_export_that_fails_leaves_the_old_model(shell: Shell, tmp_path: Path) -> None:
    save_tiny(tmp_path / "tiny")
    done = shell("export", "abcd", "--to", "hf", "-o", str(tmp_path / "tiny"), "--force")
    assert done.code == 2  # no family of Hugging Face's has a model without norms
    assert open_model(tmp_path / "tiny").config == CONFIG
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


def pickled(folder: Path) -> Pretrained:
    """A Hugging Face folder whose weights are in a pickle."""
    import torch
    from safetensors.numpy import load_file

    huggingface.write(folder, tiny())
    tensors = {name: torch.from_numpy(w) for name, w in load_file(folder / "model.safetensors").items()}
    torch.save(tensors, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return tiny()


@pytest.mark.parametrize("what", ["", "pytorch_model.bin"])
def test_import_turns_a_pickle_into_safetensors(shell: Shell, tmp_path: Path, what: str) -> None:
    given = pickled(tmp_path / "old")
    done = shell("import", str(tmp_path / "old" / what), "-o", str(tmp_path / "new"))
    assert done.code == 0, done.err
    assert done.out.startswith(f"{tmp_path / 'new'}: llama, ")
    assert "3,856 parameters in 20 tensors" in done.out
    made = open_model(tmp_path / "new")
    assert all(np.array_equal(made.weights[name], weight) for name, weight in given.weights.items())
    again = shell("import", str(tmp_path / "old" / what), "-o", str(tmp_path / "new"))
    assert "--force replaces it" in again.err


@pytest.mark.parametrize(
    ("to", "place", "begin"),
    [("hf", "out", "new_model_folder"), ("gguf", "out.gguf", "new_model_file")],
)
def test_what_a_killed_export_left_is_removed_by_the_next(
    shell: Shell, to: str, place: str, begin: str, tmp_path: Path
) -> None:
    script = (
        "import os, signal; from pathlib import Path; from pellucid.formats import folder\n"
        f"with folder.{begin}(Path({str(tmp_path / place)!r}), False, print):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script], check=False, cwd=Path(__file__).parents[2])
    assert len(list(tmp_path.iterdir())) == 1
    save_tiny(tmp_path / "tiny")
    (tmp_path / "mine.partial").write_text("a stranger's")
    asked = ["export", str(tmp_path / "tiny"), "--to", to, "-o", str(tmp_path / place), "--no-tokenizer"]
    assert shell(*asked).code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["mine.partial", place, "tiny"])

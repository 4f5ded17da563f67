"""Tensors with other names, buffers and tied copies are understood; strange and misshapen ones refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.errors import FileError
from pellucid.interop.huggingface import read
from pellucid.interop.safetensors_file import ONE_FILE, Stored, read_file, write_file
from tests.interop.huggingface.models import random_model

Change = Callable[[dict[str, Stored]], object]


def changed(folder: Path, family: str, change: Change, **settings: Any) -> Path:
    """A folder of `transformers` whose tensors have been changed."""
    _, writer = random_model(family, 0, **settings)
    writer(folder, "float32")
    tensors = read_file(folder / ONE_FILE)
    kept = {name: _kept(tensor) for name, tensor in tensors.items()}
    change(kept)
    write_file(folder / ONE_FILE, kept)
    return folder


def _kept(tensor: Stored) -> Stored:
    bits = tensor.bits().copy()
    return Stored(tensor.type, tensor.shape, lambda: bits)


def filled(shape: tuple[int, ...], value: float = 1.0) -> Stored:
    return Stored("F32", shape, lambda: np.full(shape, value, np.float32))


def _unprefixed(prefix: str) -> Change:
    def change(tensors: dict[str, Stored]) -> None:
        renamed = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
        tensors.clear()
        tensors.update(renamed)

    return change


@pytest.mark.parametrize(("family", "prefix"), [("gpt2", "transformer."), ("llama", "model.")])
def test_names_with_and_without_the_prefix_are_one_model(tmp_path: Path, family: str, prefix: str) -> None:
    bare = read(changed(tmp_path / "bare", family, _unprefixed(prefix)))
    full = read(changed(tmp_path / "full", family, lambda tensors: None))
    assert all(np.array_equal(bare.weights[name], full.weights[name]) for name in full.weights)


def test_buffers_of_old_files_are_left_out(tmp_path: Path) -> None:
    def gpt2(tensors: dict[str, Stored]) -> None:
        tensors["transformer.h.0.attn.bias"] = filled((1, 1, 6, 6))
        tensors["transformer.h.0.attn.masked_bias"] = filled(())

    def llama(tensors: dict[str, Stored]) -> None:
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = filled((4,))
        tensors["model.rotary_emb.inv_freq"] = filled((4,))

    for family, change in (("gpt2", gpt2), ("llama", llama)):
        pretrained = read(changed(tmp_path / family, family, change))
        assert list(pretrained.weights) == list(pretrained.config.parameters())


EMBEDDING = {"gpt2": "transformer.wte.weight", "llama": "model.embed_tokens.weight"}


@pytest.mark.parametrize("family", EMBEDDING)
def test_a_tied_unembedding_may_be_stored_if_it_is_the_embedding(tmp_path: Path, family: str) -> None:
    def copy(tensors: dict[str, Stored]) -> None:
        tensors["lm_head.weight"] = tensors[EMBEDDING[family]]

    def other(tensors: dict[str, Stored]) -> None:
        tensors["lm_head.weight"] = filled(tensors[EMBEDDING[family]].shape)

    pretrained = read(changed(tmp_path / "same", family, copy, tie_word_embeddings=True))
    assert "unembed.weight" not in pretrained.weights
    with pytest.raises(FileError, match=r"lm_head\.weight is not the embedding"):
        read(changed(tmp_path / "other", family, other, tie_word_embeddings=True))


def _bare_twin(tensors: dict[str, Stored]) -> None:
    tensors["wte.weight"] = tensors["transformer.wte.weight"]


REFUSED: dict[str, tuple[Change, str]] = {
    "missing": (
        lambda t: t.pop("transformer.ln_f.weight"),
        r"the tensor transformer\.ln_f\.weight .* missing",
    ),
    "strange": (lambda t: t.update(extra=filled((2,))), "'transformer.extra' belongs to nothing"),
    "misspelt": (
        lambda t: t.update({"transformer.ln_g.weight": filled((2,))}),
        "Did you mean transformer.ln_",
    ),
    "misshapen": (
        lambda t: t.update({"transformer.ln_f.bias": filled((3, 1))}),
        r"has the shape \(3, 1\), not",
    ),
    "one layer more": (lambda t: t.update({"transformer.h.9.ln_1.bias": filled((2,))}), "belongs to nothing"),
    "twice": (_bare_twin, "twice, with and without"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_tensors_that_are_not_the_configs_are_refused_by_name(tmp_path: Path, case: str) -> None:
    change, complaint = REFUSED[case]
    with pytest.raises(FileError, match=complaint):
        read(changed(tmp_path / "model", "gpt2", change))


def test_an_untied_model_without_its_unembedding_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"the tensor lm_head\.weight .* is missing"):
        read(changed(tmp_path / "m", "llama", lambda t: t.pop("lm_head.weight"), tie_word_embeddings=False))


def test_whole_numbers_are_no_weights(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folder = changed(tmp_path / "m", "gpt2", lambda tensors: None)
    tensors = load_file(folder / ONE_FILE)
    tensors["transformer.ln_f.bias"] = tensors["transformer.ln_f.bias"].astype(np.int32)
    save_file(tensors, folder / ONE_FILE)
    with pytest.raises(FileError, match="is stored as 'I32', and weights are read as F64, F32, F16, BF16"):
        read(folder)

"""Tensors with other names, buffers and tied copies are select_keys; strange and misshapen ones refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.base.errors import FileError
from pellucid.formats.huggingface import families, read
from pellucid.formats.huggingface.families import Link
from pellucid.formats.safetensors_file import ONE_FILE, StoredTensor, read_file, write_file
from tests.formats.huggingface.models import FAMILIES, random_model

Change = Callable[[dict[str, StoredTensor]], object]


def changed(folder: Path, family: str, change: Change, **settings: Any) -> Path:
    """A folder of `transformers` whose tensors have been changed."""
    _, writer = random_model(family, 0, **settings)
    writer(folder, "float32")
    tensors = read_file(folder / ONE_FILE)
    kept = {name: _kept(tensor) for name, tensor in tensors.items()}
    change(kept)
    write_file(folder / ONE_FILE, kept)
    return folder


def _kept(tensor: StoredTensor) -> StoredTensor:
    bits = tensor.bits().copy()
    return StoredTensor(tensor.type, tensor.shape, lambda: bits)


def filled(shape: tuple[int, ...], value: float = 1.0) -> StoredTensor:
    return StoredTensor("F32", shape, lambda: np.full(shape, value, np.float32))


def _unprefixed(prefix: str) -> Change:
    def change(tensors: dict[str, StoredTensor]) -> None:
        renamed = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
        tensors.clear()
        tensors.update(renamed)

    return change


@pytest.mark.parametrize("family", FAMILIES)
def test_names_with_and_without_the_prefix_are_one_model(tmp_path: Path, family: str) -> None:
    bare = read(changed(tmp_path / "bare", family, _unprefixed(families.find(family).prefix)))
    full = read(changed(tmp_path / "full", family, lambda tensors: None))
    assert all(np.array_equal(bare.weights[name], full.weights[name]) for name in full.weights)


def test_buffers_of_old_files_are_left_out(tmp_path: Path) -> None:
    def gpt2(tensors: dict[str, StoredTensor]) -> None:
        tensors["transformer.h.0.attn.bias"] = filled((1, 1, 6, 6))
        tensors["transformer.h.0.attn.masked_bias"] = filled(())

    def llama(tensors: dict[str, StoredTensor]) -> None:
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = filled((4,))
        tensors["model.rotary_emb.inv_freq"] = filled((4,))

    for family, change in (("gpt2", gpt2), ("llama", llama)):
        pretrained = read(changed(tmp_path / family, family, change))
        assert list(pretrained.weights) == list(pretrained.config.parameters())


EMBEDDING = dict.fromkeys(FAMILIES, "model.embed_tokens.weight") | {
    "gpt2": "transformer.wte.weight",
    "bloom": "transformer.word_embeddings.weight",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tied_unembedding_may_be_stored_if_it_is_the_embedding(tmp_path: Path, family: str) -> None:
    def copy(tensors: dict[str, StoredTensor]) -> None:
        tensors["lm_head.weight"] = tensors[EMBEDDING[family]]

    def other(tensors: dict[str, StoredTensor]) -> None:
        tensors["lm_head.weight"] = filled(tensors[EMBEDDING[family]].shape)

    pretrained = read(changed(tmp_path / "same", family, copy, tie_word_embeddings=True))
    assert "unembed.weight" not in pretrained.weights
    with pytest.raises(FileError, match=r"lm_head\.weight"):
        read(changed(tmp_path / "other", family, other, tie_word_embeddings=True))


def _bare_twin(tensors: dict[str, StoredTensor]) -> None:
    tensors["wte.weight"] = tensors["transformer.wte.weight"]


REFUSED: dict[str, tuple[Change, str]] = {
    "missing": (
        lambda t: t.pop("transformer.ln_f.weight"),
        r"the tensor transformer\.ln_f\.weight .* missing",
    ),
    "strange": (lambda t: t.update(extra=filled((2,))), "'transformer.extra'"),
    "misspelt": (
        lambda t: t.update({"transformer.ln_g.weight": filled((2,))}),
        "'transformer.ln_",
    ),
    "misshapen": (
        lambda t: t.update({"transformer.ln_f.bias": filled((3, 1))}),
        r"has the shape \(3, 1\), not",
    ),
    "one layer more": (lambda t: t.update({"transformer.h.9.ln_1.bias": filled((2,))}), "h.9.ln_1.bias"),
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


def test_whole_numbers_are_not_weights(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folder = changed(tmp_path / "m", "gpt2", lambda tensors: None)
    tensors = load_file(folder / ONE_FILE)
    tensors["transformer.ln_f.bias"] = tensors["transformer.ln_f.bias"].astype(np.int32)
    save_file(tensors, folder / ONE_FILE)
    with pytest.raises(FileError, match=r"'I32'.*F64, F32, F16, BF16"):
        read(folder)


def test_fused_rows_are_cut_head_by_head_where_there_are_groups() -> None:
    """Two heads of two channels: rows q0 q0 k0 k0 v0 v0 q1 q1 k1 k1 v1 v1."""
    fused = np.arange(12, dtype=np.float32)
    shapes = {"q": (4,), "k": (4,), "v": (4,)}
    link = Link("theirs", ("q", "k", "v"), groups=2)
    parts = dict(link.split(StoredTensor("F32", (12,), lambda: fused), shapes))
    read_back = {name: tensor.read() for name, tensor in parts.items()}
    assert {name: rows.tolist() for name, rows in read_back.items()} == {
        "q": [0, 1, 6, 7],
        "k": [2, 3, 8, 9],
        "v": [4, 5, 10, 11],
    }
    assert np.array_equal(link.join(read_back, shapes, "F32", exact=True).bits(), fused)


def test_bloom_stores_the_rows_of_query_key_and_value_head_by_head(tmp_path: Path) -> None:
    """Told from the module that uses them, not from the table that was written after it."""
    import torch

    model, writer = random_model("bloom", 0, n_head=3, hidden_size=12)
    weights = read(writer(tmp_path)).weights
    attention = model.transformer.h[0].self_attention
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 5, 12)))
    with torch.no_grad():
        theirs = attention._reshape(attention.query_key_value(x))  # B H T D
    for which, heads in zip("qkv", theirs, strict=True):
        weight, bias = (weights[f"blocks.0.attn.{which}_proj.{end}"] for end in ("weight", "bias"))
        ours = (x.numpy() @ weight.T + bias).reshape(1, 5, 3, 4).transpose(0, 2, 1, 3)
        assert np.allclose(ours, heads.numpy(), rtol=0, atol=1e-13)

"""A real model: the file that PELLUCID_SMOLLM2 names, SmolLM2-135M-Instruct as quantized by others."""

import dataclasses
import os
import time
from pathlib import Path
from typing import Any

import gguf as outside
import numpy as np
import pytest

from pellucid.config import preset
from pellucid.formats import gguf
from pellucid.formats.gguf.container import read_container
from pellucid.formats.pretrained import Pretrained
from pellucid.parts.positions.rope import Rope
from pellucid.reference.training import forward
from tests.formats.gguf.test_llama_cpp import TEXTS, LlamaCpp, log_probabilities, random_texts

PATH = os.environ.get("PELLUCID_SMOLLM2", "")
pytestmark = pytest.mark.skipif(not PATH, reason="PELLUCID_SMOLLM2 names no file")


@pytest.fixture(scope="module")
def smollm2() -> Pretrained:
    return gguf.read(PATH)


@pytest.fixture(scope="module")
def weights(smollm2: Pretrained) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
    return dict(smollm2.weights)


def test_its_config_is_the_preset_with_rope_in_pairs(smollm2: Pretrained) -> None:
    wanted = preset("smollm2-135m")
    assert isinstance(wanted.positions, Rope)
    pairs = dataclasses.replace(wanted.positions, layout="pairs")
    assert smollm2.config == dataclasses.replace(wanted, positions=pairs)
    assert smollm2.generation == {"bos_token_id": 1, "eos_token_id": [2]}
    assert not smollm2.add_bos
    assert smollm2.chat_template is not None and "<|im_start|>" in smollm2.chat_template
    assert smollm2.provenance.types["embed.weight"] == "Q8_0"
    assert smollm2.provenance.types["blocks.3.mlp.up_proj.weight"] == "Q4_1"


def test_every_weight_is_that_of_the_gguf_package() -> None:
    container, theirs = read_container(Path(PATH)), outside.GGUFReader(PATH)
    for tensor in theirs.tensors[1:20]:
        wanted = outside.quants.dequantize(tensor.data, tensor.tensor_type)
        assert np.array_equal(container.rows(tensor.name), wanted), tensor.name


def test_its_tokens_are_those_of_llama_cpp(smollm2: Pretrained) -> None:
    theirs, ours = LlamaCpp(Path(PATH)), smollm2.tokenizer
    assert ours is not None
    chat = "<|im_start|>user\nHow many r's are in 1234 strawberries?<|im_end|>\n"
    for text in (*TEXTS, *random_texts(100), chat, chat.replace("\n", " \n\n  ")):
        assert ours.encode(text) == theirs.tokens(text), text
        assert ours.encode(text, parse_special=True) == theirs.tokens(text, parse_special=True), text


@pytest.mark.torture
def test_its_tokens_are_those_of_transformers(smollm2: Pretrained) -> None:
    from transformers import AutoTokenizer

    # transformers does not cut digits one by one, which shows only where a digit is several bytes.
    path, ours = Path(PATH), smollm2.tokenizer
    theirs = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name, local_files_only=True)
    assert ours is not None
    for text in TEXTS:
        if "١٢٣" not in text:
            assert ours.encode(text) == theirs.encode(text, add_special_tokens=False), text


def test_its_next_token_is_that_of_llama_cpp(
    smollm2: Pretrained, weights: dict[str, np.ndarray[Any, np.dtype[Any]]]
) -> None:
    assert smollm2.tokenizer is not None
    ids = smollm2.tokenizer.encode("The cat sat on")
    found, theirs = forward(smollm2.config, weights, [ids])["logits"], LlamaCpp(Path(PATH)).next(ids, 10)
    assert int(found[0, -1].argmax()) == max(theirs, key=theirs.__getitem__)


@pytest.mark.torture
def test_its_probabilities_are_those_of_llama_cpp(
    smollm2: Pretrained, weights: dict[str, np.ndarray[Any, np.dtype[Any]]], tmp_path: Path
) -> None:
    """With Q4_1 matrices llama.cpp rounds activations to 8 bits; with the same weights in F32 it does not."""
    assert smollm2.tokenizer is not None
    ids, whole = smollm2.tokenizer.encode("The cat sat on"), dataclasses.replace(smollm2, weights=weights)
    found = log_probabilities(whole, ids)
    gguf.write(tmp_path / "m.gguf", whole, "F32")
    theirs = LlamaCpp(tmp_path / "m.gguf").next(ids, 100)
    (tmp_path / "m.gguf").unlink()
    assert max(abs(found[id] - value) for id, value in theirs.items()) < 1e-3


@pytest.mark.torture
def test_rewritten_it_says_the_same(
    smollm2: Pretrained, weights: dict[str, np.ndarray[Any, np.dtype[Any]]], tmp_path: Path
) -> None:
    gguf.write(tmp_path / "m.gguf", smollm2, "Q8_0")
    back = gguf.read(tmp_path / "m.gguf")
    assert (back.config, back.generation, back.chat_template) == (
        smollm2.config,
        smollm2.generation,
        smollm2.chat_template,
    )
    assert back.tokenizer is not None and smollm2.tokenizer is not None
    for text in TEXTS:
        assert back.tokenizer.encode(text) == smollm2.tokenizer.encode(text)
    ids = smollm2.tokenizer.encode("Once upon a time, there")
    theirs = LlamaCpp(tmp_path / "m.gguf").next(ids, 10)
    logits = forward(smollm2.config, weights, [ids])["logits"][0, -1]
    assert int(logits.argmax()) == max(theirs, key=theirs.__getitem__)


@pytest.mark.timed
def test_it_opens_and_is_read_in_time() -> None:
    """Seconds of one core, so that what else the machine does is not measured."""
    start = time.process_time()
    read_container(Path(PATH))
    tables = time.process_time()
    read = gguf.read(PATH)
    opened = time.process_time()
    for name in read.weights:
        _ = read.weights[name]
    assert tables - start < 0.3
    assert opened - tables < 1.0
    assert time.process_time() - opened < 1.5

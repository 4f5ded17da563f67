"""A model is written as it is, or the choice that GGUF cannot say is named."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf as outside
import numpy as np
import pytest
import tokenizers

from pellucid.base.errors import FileError
from pellucid.formats import gguf, huggingface
from pellucid.formats.gguf import writing
from pellucid.formats.pretrained import LazyTensor, LazyWeights
from pellucid.reference.training import forward
from pellucid.text.kinds import train
from pellucid.text.standard import StandardTokenizer
from pellucid.text.tokenizer import Special
from pellucid.text.word_level import CharacterTokenizer
from tests.formats.gguf.random_models import (
    ARCHITECTURES,
    BLOOM,
    GPT2,
    LLAMA,
    LLAMA3,
    QWEN2,
    QWEN3,
    YARN,
    model,
    tokenizer,
)

IDS = [[5, 9, 200, 31, 260, 7]]


HALVES, PAIRS = ({"kind": "rope", "layout": layout, "base": 300.0} for layout in ("halves", "pairs"))
SAME: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "llama in halves": ("llama", LLAMA | {"positions": HALVES}, {"positions": PAIRS}),
    "with biases": ("llama", LLAMA | {"positions": HALVES, "biases": ["qkv"]}, {"positions": PAIRS}),
    "qwen2 in pairs": ("qwen2", QWEN2 | {"positions": PAIRS}, {"positions": HALVES}),
    "qwen3 in pairs": ("qwen3", QWEN3 | {"positions": PAIRS}, {"positions": HALVES}),
    "a window as wide as the context": (
        "mistral",
        LLAMA | {"mask": {"kind": "window", "size": 64}},
        {"mask": {"kind": "causal"}},
    ),
}
"""The model's origin, its config, and what is otherwise in the config that its file gives back."""


@pytest.mark.parametrize("name", SAME)
def test_a_model_that_a_file_says_otherwise_computes_the_same(name: str, tmp_path: Path) -> None:
    came_from, config, said = SAME[name]
    ours = model(config, came_from)
    gguf.write(tmp_path / "m.gguf", ours, "F32")
    back = gguf.read(tmp_path / "m.gguf")
    assert back.config.to_dict().items() >= said.items()
    wanted = forward(ours.config, ours.weights, IDS)["logits"]
    found = forward(back.config, dict(back.weights), IDS)["logits"]
    assert np.abs(wanted - found).max() < 1e-10 * np.abs(wanted).max()
    query = "blocks.0.attn.q_proj.weight"
    assert not np.array_equal(back.weights[query], ours.weights[query])  # its rows are in the other order


@pytest.mark.parametrize(
    ("base", "change", "complaint"),
    [
        (LLAMA, {"norm": "layer_norm"}, "llama has norm = .*rms_norm.*, not .*layer_norm"),
        (LLAMA, {"mlp": "relu"}, "llama has mlp = .*swiglu.*, not .*relu"),
        (LLAMA, {"mask": "none"}, "llama has mask = .*causal.*, not .*none"),
        (LLAMA, {"positions": "none"}, "llama has positions"),
        (LLAMA, {"residual": "none"}, "llama has residual"),
        (LLAMA, {"biases": ["unembed"]}, "llama has biases"),
        (LLAMA, {"biases": ["norm"]}, "llama has biases"),
        (GPT2, {"mlp": "gelu"}, "gpt2 has mlp = .*gelu_tanh.*, not .*gelu"),
        (GPT2, {"biases": ["qkv"]}, "gpt2 has biases"),
        (GPT2, {"n_kv_head": 2}, "gpt2 has n_kv_head = 4, not 2"),
        (GPT2, {"d_head": 32}, "gpt2 has d_head = 16, not 32"),
        (LLAMA, {"mask": {"kind": "window", "size": 63}}, "llama has mask = .*causal.*, not .*window.*63"),
        (LLAMA, {"positions": "rope_ntk"}, "llama has positions = .*'rope'.*, not .*rope_ntk"),
        (LLAMA, {"positions": YARN | {"beta_fast": 8.0}}, "llama has positions = .*32.0.*, not .*8.0"),
        (
            LLAMA,
            {"positions": YARN | {"base": 1e6, "original_context": 2**33}},
            "llama cannot: .* 32 bits",
        ),
        (LLAMA, {"positions": {"kind": "rope", "base": 1e300}}, "llama cannot: .*finite"),
        (LLAMA, {"positions": LLAMA3 | {"original_context": 4096}}, "llama cannot: .*rope_freqs.weight"),
        (LLAMA, {"positions": LLAMA3 | {"high_freq_factor": 5.0}}, "llama cannot: .*rope_freqs.weight"),
        (LLAMA, {"positions": LLAMA3 | {"factor": 1e300}}, "llama cannot: .*rope_freqs.weight"),
        (QWEN3, {"positions": LLAMA3}, "qwen3 has positions = .*'rope'.*, not .*rope_llama3"),
        (QWEN3, {"qk_norm": {"kind": "rms_norm", "eps": 0.1}}, "qwen3 has qk_norm = .*1e-05.*, not .*0.1"),
        (QWEN3, {"biases": ["qkv"]}, r"qwen3 has biases = \[\], not \['qkv'\]"),
        (BLOOM, {"n_kv_head": 2}, "bloom has n_kv_head = 4, not 2"),
        (BLOOM, {"embed_norm": "none"}, "bloom has embed_norm"),
        (BLOOM, {"mlp": "gelu"}, "bloom has mlp = .*gelu_tanh.*, not .*gelu"),
        (BLOOM, {"biases": ["qkv", "output", "mlp"]}, "bloom has biases"),
    ],
)
def test_a_choice_that_no_architecture_has_is_named(
    base: dict[str, Any], change: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(FileError, match=f"no GGUF architecture.*{complaint}"):
        gguf.write(tmp_path / "m.gguf", model(base | change))
    assert os.listdir(tmp_path) == []


def test_of_several_architectures_that_can_hold_a_model_it_gets_its_own(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    for came_from, written in {
        "qwen2": "qwen2",
        "llama": "llama",
        "mistral": "llama",
        "none": "llama",
    }.items():
        gguf.write(path, model(QWEN2, came_from), "F32", force=True)
        assert gguf.read(path).provenance.architecture == written
    gguf.write(
        path, model(QWEN2 | {"d_head": 32}, "qwen2"), "F32", True
    )  # wider than llama.cpp's Qwen2 can be
    assert gguf.read(path).provenance.architecture == "llama"
    for name in ("gpt2", "qwen3", "bloom"):
        gguf.write(path, model(ARCHITECTURES[name]), "F32", force=True)
        assert gguf.read(path).provenance.architecture == name


def test_dropout_is_for_training_alone_and_stops_no_export(tmp_path: Path) -> None:
    """The plan for a short text sets dropout: such a model must reach other programs too."""
    gguf.write(tmp_path / "m.gguf", model(LLAMA | {"dropout": {"kind": "bernoulli"}}), "F32")
    assert gguf.read(tmp_path / "m.gguf").config.dropout.kind == "none"


def test_the_attention_scale_of_yarn_survives_to_the_last_bits_of_float32(tmp_path: Path) -> None:
    for factor in (0.5, 1.0, 1.7, 0.123456789012, 1 + 0.1 * np.log(4), 123.45678):
        ours = model(LLAMA | {"positions": YARN | {"attention_factor": float(factor)}})
        gguf.write(tmp_path / "m.gguf", ours, "F32", force=True)
        back = gguf.read(tmp_path / "m.gguf").config.positions
        assert abs(back.attention_scale / ours.config.positions.attention_scale - 1) < 2**-21
        again = model(LLAMA | {"positions": back.to_dict()})
        gguf.write(tmp_path / "m2.gguf", again, "F32", force=True)
        assert gguf.read(tmp_path / "m2.gguf").config.positions == back


def test_blooms_way_to_cut_words_has_a_name(tmp_path: Path) -> None:
    """As BLOOM's own tokenizer.json has it."""
    cut = {"type": "Split", "pattern": {"Regex": " ?[^(\\s|[.,!?…。，、।۔،])]+"}, "behavior": "Isolated"}
    bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    file = tokenizer().file | {
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [cut | {"invert": False}, bytes]}
    }
    bloom = StandardTokenizer(json.dumps(file), Special(), "bpe")
    gguf.write(tmp_path / "m.gguf", model(BLOOM, tokenizer=bloom), "F32")
    back = gguf.read(tmp_path / "m.gguf").tokenizer
    assert b"tokenizer.ggml.pre" in (tmp_path / "m.gguf").read_bytes()
    assert back is not None
    for text in ("the cat, in (the) hat. 12", "  a|b  。x"):
        assert back.decode(back.encode(text)) == text
        assert back.encode(text) == tokenizers.Tokenizer.from_str(json.dumps(file)).encode(text).ids


def test_matrices_take_the_asked_type_and_rows_that_fill_no_block_take_f16(tmp_path: Path) -> None:
    gguf.write(tmp_path / "m.gguf", model(LLAMA | {"d_ff": 80}), "Q8_0")
    types = gguf.read(tmp_path / "m.gguf").provenance.types
    assert types["embed.weight"] == types["blocks.1.attn.k_proj.weight"] == "Q8_0"
    assert types["blocks.0.mlp.up_proj.weight"] == "Q8_0"
    assert types["blocks.0.mlp.down_proj.weight"] == "F16"
    assert types["blocks.0.attn_norm.weight"] == "F32"


def test_learned_positions_and_biases_stay_f32(tmp_path: Path) -> None:
    gguf.write(tmp_path / "m.gguf", model(GPT2), "F16")
    types = gguf.read(tmp_path / "m.gguf").provenance.types
    assert types["positions.weight"] == types["blocks.0.attn.q_proj.bias"] == "F32"
    assert types["blocks.0.attn.q_proj.weight"] == "F16"


def test_an_unknown_type_gets_a_hint(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="Q8_0"):
        gguf.write(tmp_path / "m.gguf", model(LLAMA), "Q8_O")


def test_weights_are_asked_for_one_tensor_at_a_time(tmp_path: Path) -> None:
    ours, asked = model(LLAMA), list[str]()

    def lazily(name: str) -> LazyTensor:
        def read() -> np.ndarray[Any, np.dtype[Any]]:
            asked.append(name)
            return ours.weights[name]

        return LazyTensor(ours.weights[name].shape, read)

    lazy = LazyWeights({name: lazily(name) for name in ours.weights})
    gguf.write(tmp_path / "m.gguf", model(LLAMA, weights=lazy), "F32")
    assert sorted(asked) == sorted(ours.weights)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF of old")
    broken = model(LLAMA)
    broken.weights["final_norm.weight"][3] = np.nan
    with pytest.raises(FileError, match=r"output_norm.weight "):
        gguf.write(path, broken, force=True)
    assert os.listdir(tmp_path) == ["m.gguf"]
    assert path.read_bytes() == b"GGUF of old"


def test_a_file_that_is_not_gguf_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "thesis.gguf"
    path.write_bytes(b"years of work")
    for force in (False, True):
        with pytest.raises(FileError, match=r"thesis\.gguf"):
            gguf.write(path, model(LLAMA), force=force)
    assert path.read_bytes() == b"years of work"


@pytest.mark.parametrize("key", ["bos_token_id", "eos_token_id", "pad_token_id"])
@pytest.mark.parametrize("write", [gguf.write, huggingface.write], ids=["gguf", "huggingface"])
def test_a_special_token_beyond_the_vocabulary_is_blamed_on_the_source(
    write: Callable[..., None], key: str, tmp_path: Path
) -> None:
    """As transformers writes a GPT-2 of few tokens: its eos_token_id stays 50256."""
    given = model(GPT2, generation={key: 50256})
    with pytest.raises(FileError) as error:
        write(tmp_path / "m.gguf", given)
    assert str(error.value).startswith(f"{given.provenance.path} ") and f"{key} 50256" in str(error.value)
    assert os.listdir(tmp_path) == []


def test_a_file_that_cannot_be_read_again_does_not_get_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_encode_header", lambda metadata, tensors: b"GGUF and nothing that follows")
    with pytest.raises(FileError) as error:
        gguf.write(tmp_path / "m.gguf", model(GPT2))
    assert str(tmp_path / "m.gguf") in str(error.value) and "partial" not in str(error.value)
    assert os.listdir(tmp_path) == []


def test_a_trained_tokenizer_comes_back_with_the_same_ids(tmp_path: Path) -> None:
    texts = ["the cat sat on the mat, and the dog ate 1234 hats\n"] * 20
    trained = train("bpe", texts, 290, Special("<end>", "<end>", "<pad>"))
    gguf.write(tmp_path / "m.gguf", model(LLAMA | {"vocab_size": 300}, tokenizer=trained, generation={}))
    back = gguf.read(tmp_path / "m.gguf")
    assert back.tokenizer is not None
    assert back.tokenizer.special == trained.special
    assert back.generation["eos_token_id"] == [trained.id_of("<end>")]
    for text in (*texts[:1], "naïve 東京 🙂 <end> \x00", ""):
        assert back.tokenizer.encode(text) == trained.encode(text)
        assert back.tokenizer.encode(text, parse_special=True) == trained.encode(text, parse_special=True)
        assert back.tokenizer.decode(trained.encode(text)) == text


@pytest.mark.parametrize(
    ("settings", "read"),
    [
        ({"temperature": 0.6, "top_k": 40, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.1}, None),
        ({"do_sample": False, "temperature": 0.6}, {"temperature": 0.0}),
        ({"temperature": "hot", "top_k": None, "num_beams": 4}, {}),
    ],
)
def test_recommended_sampling_settings_are_kept(
    settings: dict[str, Any], read: dict[str, Any] | None, tmp_path: Path
) -> None:
    gguf.write(tmp_path / "m.gguf", model(LLAMA, generation={"eos_token_id": [1], **settings}))
    back = gguf.read(tmp_path / "m.gguf").generation
    assert {key: back[key] for key in back if not key.endswith("_id")} == (settings if read is None else read)
    keys = outside.GGUFReader(tmp_path / "m.gguf").fields
    assert (outside.Keys.General.SAMPLING_PENALTY_REPEAT in keys) == ("repetition_penalty" in settings)


def test_a_tokenizer_that_gguf_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="char"):
        gguf.write(
            tmp_path / "m.gguf", model(LLAMA, tokenizer=CharacterTokenizer(tuple("abc"), Special(), None))
        )
    unigram = train("unigram", ["the cat sat on the mat"] * 9, 270)
    with pytest.raises(FileError, match="the kind unigram"):
        gguf.write(tmp_path / "m.gguf", model(LLAMA, tokenizer=unigram))
    with pytest.raises(FileError, match=r"267 tokens .* 200 rows"):
        gguf.write(tmp_path / "m.gguf", model(LLAMA | {"vocab_size": 200}, tokenizer=tokenizer()))
    with pytest.raises(FileError, match="3 end tokens"):
        gguf.write(tmp_path / "m.gguf", model(LLAMA, generation={"eos_token_id": [1, 2, 3, 4]}))
    assert os.listdir(tmp_path) == []

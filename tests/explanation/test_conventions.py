"""The card leaves no choice out."""

import dataclasses
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.base.quantized import Scheme
from pellucid.config import ModelConfig, preset, presets
from pellucid.explanation import conventions
from pellucid.explanation.conventions import card
from pellucid.formats import model_folder
from pellucid.formats.pretrained import Pretrained, Provenance, parameter_count
from pellucid.formats.quantizing import quantize_pretrained
from pellucid.formats.resolve import open_model
from pellucid.parts.mlps import GeluTanh
from pellucid.parts.norms import LayerNormConfig
from pellucid.parts.positions.learned import Learned
from pellucid.parts.positions.rope import Rope
from pellucid.parts.unembeddings import LinearUnembedding
from pellucid.reference.op import Array
from pellucid.text.tokenizer import Special
from pellucid.text.word_level import WordTokenizer

SIZES: dict[str, Any] = {"vocab_size": 8, "context_length": 8, "n_layer": 1, "n_head": 4, "d_model": 16}
LLAMA = ModelConfig(**SIZES, n_kv_head=2, positions=Rope(1000.0, "pairs"))
GPT2 = ModelConfig(
    **SIZES, positions=Learned(), norm=LayerNormConfig(1e-6), mlp=GeluTanh(), unembedding=LinearUnembedding(),
    biases=("qkv", "output", "mlp", "norm", "unembed"),
)  # fmt: skip
WORDS = WordTokenizer(("<s>", "</s>", *"abcdef"), Special(bos="<s>", eos="</s>"))


def weights_of(config: ModelConfig) -> dict[str, Array]:
    rng = np.random.default_rng(7)
    made = {name: rng.normal(0, 0.5, shape) for name, shape in config.parameters().items()}
    return {name: w + 1 if "norm.weight" in name else w for name, w in made.items()}


def pretrained(config: ModelConfig, **change: Any) -> Pretrained:
    types = dict.fromkeys(config.parameters(), "F32") | {"embed.weight": "Q8_0"}
    source = Provenance(Path("model.gguf"), "gguf", "llama", types, 12_345)
    given = Pretrained("Tiny", config, weights_of(config), WORDS, source)
    return replace(given, **change)


# ---- the card


@pytest.mark.parametrize("name", presets())
def test_every_choice_of_a_config_is_on_its_card(name: str) -> None:
    config = preset(name)
    message = "\n".join(conventions.lines(card(name, config)))
    for size in ("n_layer", "n_head", "n_kv_head", "d_model", "d_head", "vocab_size", "context_length"):
        assert f"{getattr(config, size):,}" in message, size
    labels = {row.label for row in card(name, config).rows}
    parts = {
        entry.name for entry in dataclasses.fields(config) if hasattr(getattr(config, entry.name), "kind")
    }
    without = {row.value for row in card(name, config).rows if row.label == "without"}
    assert parts <= labels | {key for value in without for key in value.split(", ")}
    assert max(map(len, message.splitlines())) <= 110


def test_the_card_of_a_real_shape_says_what_its_papers_say() -> None:
    smollm2, gpt2 = card("a", preset("smollm2-135m")), card("b", preset("gpt2"))
    assert smollm2["positions"].value == "rope, base 100,000, layout halves"
    assert smollm2["norm"].value == "rms_norm, eps 1e-05"
    assert smollm2["heads"].value == "9 query heads of 64 channels on 3 key/value heads (3 on each)"
    assert smollm2["activation"].value == "silu: A(x) = x / (1 + e^(-x))"
    assert smollm2["unembedding"].value == "tied"
    assert smollm2["biases"].value == "none"
    assert smollm2["parameters"].value == "134,515,008"
    assert gpt2["activation"].value.startswith("gelu_tanh: A(x) = x · (1 + tanh(u(x))) / 2")
    assert gpt2["biases"].value == "at qkv, output, mlp, norm; none at unembed"
    assert gpt2["scale of scores"].value == "1/√D = 0.125"


def test_the_card_of_a_file_says_what_the_file_says() -> None:
    made = card("x", LLAMA, pretrained(LLAMA, chat_template="{{ x }}", generation={"eos_token_id": [1, 99]}))
    assert made["architecture"].value == "llama"
    assert made["file"].value == "model.gguf (gguf, 12.3 kB)"
    assert made["tokenizer"].value == "words, 8 tokens"
    assert made["bos"].value == "a text does not begin with bos (<s> exists)"
    assert made["eos"].value == "1 (</s>), 99 (not in the tokenizer)"
    assert made["chat template"].value == "7 characters"
    assert "; Q8_0: 1 tensor, 128 numbers, 136 B; " in made["stored as"].value
    assert made["stored as"].value.endswith(" bits per weight")
    assert "per weight" not in card("abcd", LLAMA, open_model("abcd"))["stored as"].value
    with_bos = card("x", LLAMA, pretrained(LLAMA, add_bos=True))
    assert with_bos["bos"].value == "a text begins with <s>"
    assert with_bos["eos"].value == "1 (</s>)"  # the tokenizer's, where the file names none
    assert card("x", LLAMA, pretrained(LLAMA, tokenizer=None))["tokenizer"].value == "none in the file"


def test_the_card_of_abcd_says_that_a_forgotten_transposition_is_not_seen_in_it() -> None:
    """Its W_Q, W_K and W_V are multiples of the identity."""
    abcd = open_model("abcd")
    row = card("abcd", abcd.config, abcd)["orientation"]
    assert "q_proj" in row.value and "transposition" in row.why
    rotated = {**abcd.weights, "blocks.0.attn.q_proj.weight": np.array([[0.0, 1.0], [-1.0, 0.0]])}
    other = card("other", abcd.config, dataclasses.replace(abcd, weights=rotated))
    assert "orientation" not in [row.label for row in other.rows]


def test_the_card_describes_the_kind_and_not_its_family() -> None:
    abcd = open_model("abcd")
    assert card("abcd", abcd.config)["norm"].formula == "No normalization: the identity."


def test_what_a_stored_number_takes_is_what_the_reader_says() -> None:
    from pellucid.formats.gguf.quants import BY_NAME

    for name, size in conventions.BYTES.items():
        if name in BY_NAME:
            assert size == BY_NAME[name].bytes(BY_NAME[name].size) / BY_NAME[name].size, name
    assert set(BY_NAME) <= set(conventions.BYTES)


@pytest.mark.parametrize(("scheme", "bits"), [(Scheme(8), 8 + 16 / 64), (Scheme(4, 32), 4 + 32 / 32)])
def test_the_card_of_quantized_weights_says_their_bits(tmp_path: Path, scheme: Scheme, bits: float) -> None:
    config = dataclasses.replace(LLAMA, vocab_size=64, d_model=64, d_ff=64, n_head=1, n_kv_head=1, d_head=64)
    arrays = {name: array.astype(np.float32) for name, array in weights_of(config).items()}
    floats = pretrained(config, weights=arrays, tokenizer=None)
    model_folder.write(tmp_path / "m", quantize_pretrained(floats, scheme))
    found = open_model(tmp_path / "m")
    shown = card("m", config, found)["stored as"].value
    assert shown.startswith(f"INT{scheme.bits}: ")
    vectors = sum(math.prod(shape) for shape in config.parameters().values() if len(shape) == 1)
    count = parameter_count(config.parameters())
    wanted = (bits * (count - vectors) + 32 * vectors) / count
    assert shown.endswith(f"; {wanted:.3g} bits per weight")

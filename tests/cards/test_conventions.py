"""The card leaves no choice out, and the probe's wrong conventions are the mistakes that they claim to be."""

import dataclasses
import math
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.cards import conventions, probe
from pellucid.cards.conventions import card
from pellucid.cards.probe import ALTERNATIVES, Case
from pellucid.config import ModelConfig, preset, presets
from pellucid.errors import TokenError
from pellucid.interop import model_folder
from pellucid.interop.quantizing import quantize_pretrained
from pellucid.interop.resolve import open_model
from pellucid.parts.mlps import GeluTanh
from pellucid.parts.norms import LayerNormConfig, RmsNormConfig
from pellucid.parts.positions import PositionsConfig, RotaryAngles
from pellucid.parts.positions.learned import Learned
from pellucid.parts.positions.rope import Rope
from pellucid.parts.unembeddings import LinearUnembedding
from pellucid.pretrained import Pretrained, Provenance, parameter_count
from pellucid.quantized import Scheme
from pellucid.reference.op import Array
from pellucid.reference.training import forward
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


def case_of(config: ModelConfig, **change: Any) -> Case:
    return replace(probe.make_case(config, weights_of(config), WORDS, text="a b c d e f"), **change)


def changed(name: str, config: ModelConfig) -> Case:
    made = ALTERNATIVES[name](case_of(config))
    assert made is not None
    return made


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
    from pellucid.interop.gguf.quants import BY_NAME

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


# ---- the probe


def test_every_alternative_applies_to_some_model_and_none_is_left_out_silently() -> None:
    varied = {
        "qk_norm": "rms_norm", "embed_norm": "layer_norm", "score_cap": "tanh", "logit_cap": "tanh",
        "mask": {"kind": "window", "size": 3},
    }  # fmt: skip
    scaled = ModelConfig.from_dict({**LLAMA.to_dict(), **varied, "positions": "rope_linear"})
    biased = ModelConfig.from_dict({**LLAMA.to_dict(), "positions": "alibi"})
    every = [probe.probe(case_of(config)) for config in (LLAMA, GPT2, scaled, biased)]
    for done in every:
        assert len(done.findings) + len(done.not_applied) == len(ALTERNATIVES)
        message = "\n".join(probe.lines(done))
        assert all(name in message.replace("\n", " ") for name in ALTERNATIVES)
    assert not set.intersection(*(set(done.not_applied) for done in every))


def test_findings_come_with_the_most_harmful_first_and_small_ones_are_remarked() -> None:
    done = probe.probe(case_of(LLAMA))
    damage = [abs(f.loss - done.loss) for f in done.findings if f.loss is not None]
    assert damage == sorted(damage, reverse=True)
    assert done.findings[-1].alternative == "norm eps: 1e-06 for 1e-05"
    last = next(line for line in probe.lines(done) if line.startswith("norm eps"))
    assert "not noticeable in the text" in last
    assert probe.remark(3.0, probe.AlternativeLoss("", float("nan"))) == "breaks the text"
    assert probe.remark(3.0, probe.AlternativeLoss("", 1.0)).startswith("lower")


def test_an_alternative_shares_every_weight_that_it_leaves_alone() -> None:
    given = case_of(LLAMA)
    before = {name: w.copy() for name, w in given.weights.items()}
    for change in ALTERNATIVES.values():
        if made := change(given):
            made.loss()
            shared = sum(made.weights.get(name) is w for name, w in given.weights.items())
            assert shared >= len(given.weights) - 3
    assert all(np.array_equal(before[name], w) for name, w in given.weights.items())


@pytest.mark.parametrize(
    ("alternative", "name", "wrong"),
    [
        ("scores without 1/√D", "scores", lambda scores: scores * 2),
        ("scores with 1/D", "scores", lambda scores: scores / 2),
        ("scores with 1/√C", "scores", lambda scores: scores / 2),
        ("mask one token ahead", "ahead", None),
        ("no mask", "none", None),
    ],
)
@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_an_alternative_is_the_mistake_that_its_name_says(
    config: ModelConfig, alternative: str, name: str, wrong: Any
) -> None:
    """Four channels a head, sixteen in all."""
    given = case_of(config)
    tape = forward(config, given.weights, [given.ids[:-1]], [given.ids[1:]])
    scores = tape["blocks.0.attn.scores"]
    if wrong:
        values = {"blocks.0.attn.scores": wrong(scores)}
    else:
        seen = np.tril(np.ones(scores.shape), 1 if name == "ahead" else 99).astype(bool)
        values = {"blocks.0.attn.masked": np.where(seen, scores, -np.inf)}
    wanted = tape.rerun(values)["loss"]
    assert changed(alternative, config).loss() == pytest.approx(float(wanted), rel=1e-12)


def test_interleaved_heads_are_those_of_keys_repeated_as_a_whole() -> None:
    """K₀ K₁ K₀ K₁ in place of K₀ K₀ K₁ K₁: what `tile` gives where `repeat` is meant."""
    given = case_of(LLAMA)
    every = {
        name: np.tile(w, (2, 1)) if ".k_proj." in name or ".v_proj." in name else w
        for name, w in given.weights.items()
    }
    whole = replace(given, config=replace(LLAMA, n_kv_head=4), weights=every)
    assert changed("query head h on key/value head h % K", LLAMA).loss() == pytest.approx(
        whole.loss(), rel=1e-12
    )


@dataclass(frozen=True)
class Backwards(PositionsConfig):
    rope: Rope = field(default_factory=Rope)

    def rotation(self, positions: Any, d_head: int) -> RotaryAngles:
        rotation = self.rope.rotation(positions, d_head)
        return RotaryAngles(-rotation.angles, rotation.layout)


@pytest.mark.parametrize("layout", ["halves", "pairs"])
def test_rope_rotated_the_other_way_is_rope_with_negative_angles(layout: str) -> None:
    rope = Rope(1000.0, layout)
    config = replace(LLAMA, positions=rope, biases=("qkv",))
    wanted = Case(replace(config, positions=Backwards(rope)), weights_of(config), case_of(config).ids)
    assert changed("RoPE rotated the other way", config).loss() == pytest.approx(wanted.loss(), rel=1e-12)


@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["tied", "untied"])
def test_a_scaled_embedding_changes_only_what_goes_in(config: ModelConfig) -> None:
    given = case_of(config)
    tape = forward(config, given.weights, [given.ids[:-1]], [given.ids[1:]])
    wanted = tape.rerun({"embedded": tape["embedded"] * config.d_model**0.5})["loss"]
    assert changed("embedding multiplied by √C", config).loss() == pytest.approx(float(wanted), rel=1e-12)


def test_positions_from_one_read_the_next_row() -> None:
    given = case_of(GPT2)
    tape = forward(GPT2, given.weights, [given.ids[:-1]], [given.ids[1:]])
    rows = given.weights["positions.weight"][1 : len(given.ids)]
    wanted = tape.rerun({"position_rows": rows})["loss"]
    assert changed("learned positions counted from 1", GPT2).loss() == pytest.approx(float(wanted), rel=1e-12)


def test_with_or_without_bos_the_same_tokens_are_counted() -> None:
    given = case_of(GPT2)
    ids = list(given.ids)
    tape = forward(GPT2, given.weights, [[0, *ids[:-1]]], [[-100, *ids[1:]]])
    assert changed("bos", GPT2).loss() == float(tape["loss"])
    back = ALTERNATIVES["bos"](changed("bos", GPT2))
    assert back is not None
    assert back.loss() == given.loss()
    assert ALTERNATIVES["bos"](replace(given, bos=None)) is None


def test_choices_are_exchanged_both_ways() -> None:
    assert changed("RoPE layout", LLAMA).note == "halves for pairs"
    assert changed("RoPE base smaller", LLAMA).note == "100 for 1,000"
    assert changed("norm", LLAMA).note == "LayerNorm for RMSNorm"
    assert changed("norm", GPT2).note == "RMSNorm for LayerNorm"
    assert changed("norm eps", GPT2).note == "1e-05 for 1e-06"
    assert changed("activation", LLAMA).note == "gelu for silu"
    assert changed("activation", GPT2).note == "gelu for gelu_tanh"
    assert changed("unembedding", LLAMA).note == "untied for tied"
    assert changed("unembedding", GPT2).note == "tied for untied"


def test_a_text_too_short_for_a_loss_is_reported_and_a_long_one_is_cut_to_the_context() -> None:
    with pytest.raises(TokenError, match="at least two tokens"):
        probe.make_case(LLAMA, weights_of(LLAMA), WORDS, text="a")
    assert len(probe.make_case(LLAMA, weights_of(LLAMA), WORDS, text="a b " * 50).ids) == LLAMA.context_length


@pytest.mark.torture
@pytest.mark.skipif("PELLUCID_SMOLLM2" not in os.environ, reason="needs the real model")
def test_on_a_real_model_the_given_conventions_are_the_best_that_do_not_look_ahead() -> None:
    from pellucid.interop.resolve import open_model

    model = open_model(os.environ["PELLUCID_SMOLLM2"])
    assert model.tokenizer is not None
    done = probe.probe(probe.make_case(model.config, model.weights, model.tokenizer, model.add_bos))
    assert 2.5 < done.loss < 3.5
    for finding in done.findings:
        assert finding.loss is not None
        assert (finding.loss < done.loss) == ("mask" in finding.alternative), finding


def test_an_alternative_makes_its_difference_behind_norms_and_biases_too() -> None:
    """A norm of the queries undoes what is done to their weights; a bias belongs to its own head."""
    normed = replace(LLAMA, qk_norm=RmsNormConfig(1e-6))
    given = case_of(normed)
    assert abs(changed("scores without 1/√D", normed).loss() - given.loss()) > 1e-3
    biased = ModelConfig.from_dict({**LLAMA.to_dict(), "positions": "alibi"})
    given = case_of(biased)
    every = {
        name: np.tile(w, (2, 1)) if ".k_proj." in name or ".v_proj." in name else w
        for name, w in given.weights.items()
    }
    whole = replace(given, config=replace(biased, n_kv_head=4), weights=every)
    dealt = changed("query head h on key/value head h % K", biased)
    assert dealt.loss() == pytest.approx(whole.loss(), rel=1e-12)

"""A model whose RoPE turns adjacent pairs is the same model with its rows reordered and halves turned."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from pellucid.config import ModelConfig
from pellucid.formats.huggingface import read, write
from pellucid.formats.pretrained import Pretrained, Provenance
from pellucid.formats.rope_layout import halves_to_pairs, in_layout, pairs_to_halves
from pellucid.parts.positions.rope import Rope
from pellucid.parts.positions.rope_yarn import RopeYarn
from pellucid.parts.unembeddings import LinearUnembedding
from pellucid.reference.op import Array
from pellucid.reference.training import forward
from tests.formats.huggingface.models import apart, float64_logits, random_ids

CONFIG = ModelConfig(
    vocab_size=11,
    context_length=9,
    n_layer=2,
    n_head=4,
    n_kv_head=2,
    d_model=12,
    d_head=6,
    d_ff=10,
    positions=Rope(base=100.0, layout="pairs"),
    unembedding=LinearUnembedding(),
    biases=("qkv", "output"),
)


def drawn(config: ModelConfig) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape) for name, shape in config.parameters().items()}


def logits(config: ModelConfig, weights: object) -> Array:
    return forward(config, dict(weights), random_ids(0, config))["logits"]  # type: ignore[call-overload]


def test_each_order_undoes_the_other() -> None:
    rows = np.arange(24 * 3).reshape(24, 3)
    assert np.array_equal(halves_to_pairs(pairs_to_halves(rows, 6), 6), rows)
    assert np.array_equal(pairs_to_halves(halves_to_pairs(rows, 8), 8), rows)
    assert pairs_to_halves(np.arange(6), 6).tolist() == [0, 2, 4, 1, 3, 5]


@pytest.mark.parametrize(("start", "layout"), [("pairs", "halves"), ("halves", "pairs")])
def test_the_reordered_model_computes_the_same_with_the_other_layout(start: str, layout: str) -> None:
    config = dataclasses.replace(CONFIG, positions=Rope(base=100.0, layout=start))
    weights = drawn(config)
    other, turned = in_layout(config, weights, layout)
    assert apart(logits(other, turned), logits(config, weights)) <= 1e-13
    assert (
        apart(logits(other, weights), logits(config, weights)) > 1e-3
    )  # without the new order it is another


def test_biases_are_reordered_too_and_values_stay() -> None:
    weights = drawn(CONFIG)
    _, turned = in_layout(CONFIG, weights, "halves")
    for name in ("q_proj.weight", "q_proj.bias", "k_proj.weight", "k_proj.bias"):
        assert not np.array_equal(turned[f"blocks.1.attn.{name}"], weights[f"blocks.1.attn.{name}"])
    for name in ("v_proj.weight", "v_proj.bias", "o_proj.weight", "o_proj.bias"):
        assert np.array_equal(turned[f"blocks.1.attn.{name}"], weights[f"blocks.1.attn.{name}"])
    only_weights = {**turned, "blocks.0.attn.q_proj.bias": weights["blocks.0.attn.q_proj.bias"]}
    config, _ = in_layout(CONFIG, weights, "halves")
    assert apart(logits(config, only_weights), logits(CONFIG, weights)) > 1e-3


VARIANTS = {
    "plain": CONFIG,
    "scaled": dataclasses.replace(CONFIG, positions=RopeYarn(layout="pairs", original_context=20)),
    "a norm of queries and keys": dataclasses.replace(CONFIG, qk_norm=CONFIG.norm),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_export_of_pairs_is_the_same_model_in_transformers(tmp_path: Path, variant: str) -> None:
    from transformers import AutoModelForCausalLM

    config = VARIANTS[variant]
    weights = drawn(config)
    write(tmp_path / "m", Pretrained("m", config, weights, None, Provenance(tmp_path, "made", "", {}, 0)))
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "m", attn_implementation="eager")
    assert apart(float64_logits(model, random_ids(0, config)), logits(config, weights)) <= 1e-10
    halves = dataclasses.replace(config.positions, layout="halves")
    assert read(tmp_path / "m").config.positions == halves


def test_a_model_without_rope_is_left_alone() -> None:
    from pellucid.config import preset

    gpt2 = preset("gpt2")
    assert in_layout(gpt2, {}, "halves") == (gpt2, {})

"""YaRN against `transformers`, by hand, and where its two ends cross."""

import math
from typing import Any

import numpy as np
import pytest

from pellucid.base.errors import ConfigError
from pellucid.parts.positions.rope import Rope
from pellucid.parts.positions.rope_yarn import RopeYarn
from pellucid.reference.ops.rotate import rotate
from tests.golden.make_huggingface import float64_throughout
from tests.parts.positions.test_rope_linear import SIZES, model, rounding, theirs

SETTINGS: list[dict[str, Any]] = [
    {},
    {"factor": 4.0, "original_context": 32_768},
    {"factor": 40.0, "original_context": 300, "beta_fast": 8.0, "beta_slow": 0.5},
    {"factor": 1.0},
]


def their_names(yarn: RopeYarn) -> dict[str, Any]:
    return {
        "factor": yarn.factor,
        "original_max_position_embeddings": yarn.original_context,
        "beta_fast": yarn.beta_fast,
        "beta_slow": yarn.beta_slow,
        "attention_factor": yarn.attention_factor or None,
    }


def test_yarn_by_hand() -> None:
    """D = 8: 32 turns in 4096 positions are those of pair 1.31, one turn that of pair 2.81. So pairs 0 and 1
    stay, pair 3 is slowed by 16, and pair 2 is half-way: 0.01 · (1 + 1/16) / 2."""
    yarn = RopeYarn(factor=16.0, original_context=4096)
    assert yarn.find_pair(32, 8) == pytest.approx(1.309, abs=5e-4)
    assert yarn.find_pair(1, 8) == pytest.approx(2.814, abs=5e-4)
    assert yarn.ramp(8).tolist() == [0, 0, 0.5, 1]
    assert yarn.frequencies(8) == pytest.approx([1, 0.1, 0.0053125, 0.0000625], rel=1e-14)
    assert yarn.attention_scale == pytest.approx(1.2772589**2, rel=1e-7)


@pytest.mark.parametrize(("d_head", "base"), SIZES)
@pytest.mark.parametrize("settings", SETTINGS)
def test_yarn_rotates_as_in_transformers(d_head: int, base: float, settings: dict[str, Any]) -> None:
    yarn = RopeYarn(base=base, **settings)
    wanted, factor = theirs("yarn", d_head, base, **their_names(yarn))
    assert yarn.frequencies(d_head) == pytest.approx(wanted, rel=1e-12)
    assert yarn.attention_scale == pytest.approx(factor**2, rel=1e-15)


def test_transformers_rounds_yarn_to_float32() -> None:
    yarn = RopeYarn()
    rounded, _ = theirs("yarn", 64, 10_000.0, exact=False, **their_names(yarn))
    assert 1e-9 < rounding(yarn.frequencies(64), rounded) < 1e-6


@pytest.mark.parametrize("attention_factor", [0.0, 0.75])
def test_sharper_scores_are_those_of_longer_cosines_and_sines(attention_factor: float) -> None:
    """`transformers` multiplies the tables of q and k; here the scores are multiplied, by the square."""
    import torch
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    yarn = RopeYarn(factor=8.0, original_context=64, attention_factor=attention_factor)
    q, k = np.random.default_rng(0).normal(size=(2, 1, 2, 5, 16))
    with float64_throughout():
        config = LlamaConfig(
            hidden_size=32,
            num_attention_heads=2,
            max_position_embeddings=512,
            rope_parameters={"rope_type": "yarn", "rope_theta": 10_000.0, **their_names(yarn)},
        )
        cos, sin = LlamaRotaryEmbedding(config)(torch.from_numpy(q), torch.arange(5)[None])
        turned = apply_rotary_pos_emb(torch.from_numpy(q), torch.from_numpy(k), cos, sin)
    wanted = (turned[0] @ turned[1].mT).numpy()
    angles = yarn.rotation(np.arange(5), 16).angles
    q, k = (rotate.forward(x, angles, "halves") for x in (q, k))
    assert yarn.attention_scale * q @ k.swapaxes(-1, -2) == pytest.approx(wanted, rel=1e-12)


def test_a_context_in_which_every_pair_rotates_often_is_refused() -> None:
    """There the authors' code, as `transformers` has it, lets the ramp's ends cross, and slows all."""
    yarn = RopeYarn(factor=16.0, original_context=2**62)
    crossed, _ = theirs("yarn", 64, 10_000.0, **their_names(yarn))
    assert crossed == pytest.approx(Rope().frequencies(64) / 16, rel=1e-12)
    why = yarn.check(model(kind="rope"))
    assert why and "every pair" in why and "beta_fast=32" in why


@pytest.mark.parametrize(
    "settings",
    [
        {"factor": 1e300},
        {"original_context": 2**63 - 1, "base": 1e9},
        {"base": 1.7e308},
        {"base": 1.001, "original_context": 7, "beta_fast": 1e3},
        {"beta_fast": 1.7e308},
        {"beta_slow": 5e-324},
        {"attention_factor": 900.0},
        {"attention_factor": 2e-3},
    ],
)
def test_extreme_settings_of_yarn_stay_numbers(settings: dict[str, Any]) -> None:
    yarn = RopeYarn(**settings)
    assert yarn.check(model(kind="rope")) is None
    for d_head in (2, 64):
        assert np.isfinite(yarn.rotation(np.arange(9), d_head).angles).all()
    assert math.isfinite(yarn.attention_scale)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"factor": 0.5}, "factor=0.5 would shrink it. Use factor=1 or more"),
        ({"original_context": 0}, "original_context.*got 0"),
        ({"original_context": 10**400}, "original_context must be a whole number"),
        ({"beta_slow": 32.0}, "beta_slow=32 must be above 0 and below beta_fast=32. The paper has 1 and 32"),
        ({"beta_slow": 0.0}, "beta_slow=0 must be above 0"),
        ({"base": 1.0}, "base=1"),
        ({"original_context": 6}, 'beta_slow=1 .*"rope_linear"'),
        ({"attention_factor": 1e200}, "attention_factor² = inf"),
        ({"layout": "thirds"}, "rope_yarn has the layouts halves and pairs"),
    ],
)
def test_yarn_says_which_settings_cannot_be(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        model(kind="rope_yarn", **settings)

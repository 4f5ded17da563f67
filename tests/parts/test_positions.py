"""Positions: rotary ones against `transformers` and by hand, rows of a table, and what cannot be."""

import contextlib
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from pellucid.base.errors import ConfigError, TapeError
from pellucid.config import ModelConfig
from pellucid.parts.positions.rope import Rope
from pellucid.parts.positions.rope_linear import RopeLinear
from pellucid.parts.positions.rope_llama3 import RopeLlama3
from pellucid.parts.positions.rope_ntk import RopeNtk
from pellucid.parts.positions.rope_yarn import RopeYarn
from pellucid.parts.positions.sinusoidal import Sinusoidal
from pellucid.reference.ops.rotate import rotate
from pellucid.reference.training import forward
from tests.golden.make_huggingface import float64_throughout
from tests.reference.models import CONFIGS, weights


def rounding(exact: np.ndarray, rounded: np.ndarray) -> float:
    """The largest relative departure of numbers from those that they should be."""
    return float(np.max(np.abs(rounded - exact) / exact))


def model(**settings: Any) -> ModelConfig:
    sizes = {"vocab_size": 5, "context_length": 6, "n_layer": 1, "n_head": 2, "d_model": 16}
    return ModelConfig.from_dict(sizes | {"positions": settings})


# ---- rows of a table


def test_learned_positions_add_their_own_row_and_end_with_their_table() -> None:
    config = CONFIGS["gpt2"]
    tape = forward(config, weights(config), [[1, 1, 1]])
    added = tape["positioned"][0] - tape["embed.weight"][1]
    assert added == pytest.approx(tape["positions.weight"][:3], abs=1e-12)
    with pytest.raises(TapeError, match=r"5 tokens.*4"):
        forward(config, weights(config), np.zeros((1, config.context_length + 1), dtype=int))


def test_sinusoidal_rows_are_sin_and_cos_of_slowing_clocks() -> None:
    """Against the table of Vaswani et al. computed by hand."""
    rows = Sinusoidal().rows(np.arange(3), 8)
    assert rows[0] == pytest.approx([0, 1, 0, 1, 0, 1, 0, 1])
    by_hand = [0.841471, 0.540302, 0.099833, 0.995004, 0.010000, 0.999950, 0.001000, 1.000000]
    assert rows[1] == pytest.approx(by_hand, abs=5e-7)


def test_sinusoidal_products_depend_on_the_distance_alone() -> None:
    rows = Sinusoidal().rows(np.arange(20), 16)
    assert rows[3] @ rows[7] == pytest.approx(rows[11] @ rows[15], abs=1e-12)


# ---- rotary angles and layouts, by hand


def test_rope_angles_slow_down_with_the_head_width_not_the_model_width() -> None:
    rotation = Rope().rotation(np.arange(2), 64)
    assert rotation.angles[1, 0] == 1.0
    assert rotation.angles[1, 31] == pytest.approx(1.333521e-4, rel=1e-6)


@pytest.mark.parametrize("layout", ["halves", "pairs"])
@pytest.mark.parametrize(
    ("x", "y"), [([1.0, 0.0], [0.540302, 0.841471]), ([0.0, 1.0], [-0.841471, 0.540302])]
)
def test_rope_rotates_one_pair_by_one_radian(x: list[float], y: list[float], layout: str) -> None:
    angles = Rope().rotation(np.array([1]), 2).angles
    assert rotate.forward(np.array([x]), angles, layout)[0] == pytest.approx(y, abs=1e-6)


def test_rope_layouts_pair_other_channels() -> None:
    """A quarter turn of the first pair alone sends channel 0 to its partner."""
    angles, x = np.array([[np.pi / 2, 0.0]]), np.array([[1.0, 2.0, 3.0, 4.0]])
    assert rotate.forward(x, angles, "halves")[0] == pytest.approx([-3, 2, 1, 4])
    assert rotate.forward(x, angles, "pairs")[0] == pytest.approx([-2, 1, 3, 4])


def test_linear_rope_by_hand() -> None:
    assert RopeLinear(factor=4.0).frequencies(4) == pytest.approx([1 / 4, 1 / 400], rel=1e-15)


def test_a_position_of_linear_rope_rotates_as_the_one_that_it_is_squeezed_to() -> None:
    squeezed = RopeLinear(factor=4.0).rotation(np.array([12]), 64).angles
    assert squeezed == pytest.approx(Rope().rotation(np.array([3]), 64).angles, rel=1e-14)


def test_ntk_rope_by_hand() -> None:
    """base' = 10000 · 4^(4/2) = 160000, and 1 / √160000 = 1/400."""
    assert RopeNtk(factor=4.0).frequencies(4) == pytest.approx([1, 1 / 400], rel=1e-15)


def test_ntk_rope_keeps_the_fastest_pair_and_slows_the_slowest_by_the_factor() -> None:
    plain, scaled = Rope().frequencies(64), RopeNtk(factor=7.0).frequencies(64)
    assert plain[0] == scaled[0] == 1
    assert plain[-1] / scaled[-1] == pytest.approx(7, rel=1e-14)


def test_llama3_rope_by_hand() -> None:
    """D = 8: in 8192 positions the pairs turn 1303.8, 130.38, 13.038 and 1.3038 times. Three turn more than 4
    times and stay; the last is 0.3038/3 = 0.10127 of the way from slowed to kept."""
    last = 0.001 * (0.10127 + (1 - 0.10127) / 8)
    frequencies = RopeLlama3().frequencies(8)
    assert frequencies[:3] == pytest.approx([1, 0.1, 0.01], rel=1e-15)
    assert frequencies[3] == pytest.approx(last, rel=3e-5)


def test_llama3_rope_keeps_what_rotates_often_and_slows_what_does_not() -> None:
    plain, scaled = (rope.frequencies(128) for rope in (Rope(base=5e5), RopeLlama3(base=5e5)))
    turns = 8192 * plain / (2 * np.pi)
    assert np.array_equal(scaled[turns > 4], plain[turns > 4])
    assert scaled[turns < 1] == pytest.approx(plain[turns < 1] / 8, rel=1e-15)
    between = (turns > 1) & (turns < 4)
    assert between.any() and (scaled < plain)[between].all() and (scaled > plain / 8)[between].all()


def test_yarn_by_hand() -> None:
    """D = 8: 32 turns in 4096 positions are those of pair 1.31, one turn that of pair 2.81. So pairs 0 and 1
    stay, pair 3 is slowed by 16, and pair 2 is half-way: 0.01 · (1 + 1/16) / 2."""
    yarn = RopeYarn(factor=16.0, original_context=4096)
    assert yarn.find_pair(32, 8) == pytest.approx(1.309, abs=5e-4)
    assert yarn.find_pair(1, 8) == pytest.approx(2.814, abs=5e-4)
    assert yarn.ramp(8).tolist() == [0, 0, 0.5, 1]
    assert yarn.frequencies(8) == pytest.approx([1, 0.1, 0.0053125, 0.0000625], rel=1e-14)
    assert yarn.attention_scale == pytest.approx(1.2772589**2, rel=1e-7)


# ---- rotary positions of other contexts, against transformers

SIZES = [(64, 10_000.0), (128, 500_000.0), (6, 100.0)]
"""Channels of a head, and the base."""
SCALED: list[tuple[type[Rope], dict[str, Any]]] = [
    *((kind, {"factor": factor}) for kind in (RopeLinear, RopeNtk) for factor in (1.0, 2.5, 32.0)),
    (RopeLlama3, {}),
    (RopeLlama3, {"factor": 32.0}),
    (
        RopeLlama3,
        {"factor": 3.5, "low_freq_factor": 0.5, "high_freq_factor": 20.0, "original_context": 300},
    ),
    (RopeYarn, {}),
    (RopeYarn, {"factor": 4.0, "original_context": 32_768}),
    (RopeYarn, {"factor": 40.0, "original_context": 300, "beta_fast": 8.0, "beta_slow": 0.5}),
    (RopeYarn, {"factor": 1.0}),
]


def their_settings(part: Any) -> dict[str, Any]:
    """The settings of a part in the words of `transformers`.

    It has the dynamic form of NTK alone: with its own factor at 1, the base follows the length.
    """
    if part.kind == "rope_ntk":
        return {"rope_type": "dynamic", "factor": 1.0}
    settings = {"rope_type": part.kind.removeprefix("rope_"), "factor": part.factor}
    if part.kind == "rope_llama3":
        settings |= {"low_freq_factor": part.low_freq_factor, "high_freq_factor": part.high_freq_factor}
    if part.kind == "rope_yarn":
        settings |= {"beta_fast": part.beta_fast, "beta_slow": part.beta_slow}
        settings |= {"attention_factor": part.attention_factor or None}
    if part.kind in ("rope_llama3", "rope_yarn"):
        settings["original_max_position_embeddings"] = part.original_context
    return settings


def theirs(part: Any, d_head: int, exact: bool = True) -> tuple[np.ndarray, float]:
    """The frequencies and the attention factor of `transformers`, in float64 or as it makes them."""
    settings = their_settings(part)
    with float64_throughout() if exact else contextlib.nullcontext():
        config = LlamaConfig(
            hidden_size=2 * d_head,
            num_attention_heads=2,
            head_dim=d_head,
            max_position_embeddings=1024,
            rope_parameters={"rope_theta": part.base, **settings},
        )
        length = int(part.factor * 1024) if part.kind == "rope_ntk" else None
        frequencies, factor = ROPE_INIT_FUNCTIONS[settings["rope_type"]](config, seq_len=length)
        assert str(frequencies.dtype) == ("torch.float64" if exact else "torch.float32")
        return frequencies.numpy(), factor


@pytest.mark.parametrize(("d_head", "base"), SIZES)
@pytest.mark.parametrize(("kind", "settings"), SCALED)
def test_a_scaled_rope_rotates_as_in_transformers(
    kind: type[Rope], settings: dict[str, Any], d_head: int, base: float
) -> None:
    part = kind(base=base, **settings)
    wanted, factor = theirs(part, d_head)
    assert part.frequencies(d_head) == pytest.approx(wanted, rel=1e-12)
    assert part.attention_scale == pytest.approx(factor**2, rel=1e-15)


@pytest.mark.parametrize(
    ("part", "d_head"),
    [
        (RopeLinear(factor=2.5), 64),
        (RopeNtk(factor=2.5), 64),
        (RopeLlama3(base=500_000.0), 128),
        (RopeYarn(), 64),
    ],
)
def test_transformers_rounds_a_scaled_rope_to_float32(part: Rope, d_head: int) -> None:
    rounded, _ = theirs(part, d_head, exact=False)
    assert 1e-9 < rounding(part.frequencies(d_head), rounded) < 1e-6


@pytest.mark.parametrize("attention_factor", [0.0, 0.75])
def test_sharper_scores_are_those_of_longer_cosines_and_sines(attention_factor: float) -> None:
    """`transformers` multiplies the tables of q and k; here the scores are multiplied, by the square."""
    yarn = RopeYarn(factor=8.0, original_context=64, attention_factor=attention_factor)
    q, k = np.random.default_rng(0).normal(size=(2, 1, 2, 5, 16))
    with float64_throughout():
        config = LlamaConfig(
            hidden_size=32,
            num_attention_heads=2,
            max_position_embeddings=512,
            rope_parameters={"rope_theta": 10_000.0, **their_settings(yarn)},
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
    crossed, _ = theirs(yarn, 64)
    assert crossed == pytest.approx(Rope().frequencies(64) / 16, rel=1e-12)
    why = yarn.check(model(kind="rope"))
    assert why and "every pair" in why and "beta_fast=32" in why


# ---- extremes, and what cannot be


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        *((kind, {"factor": 1e300}) for kind in (RopeLinear, RopeNtk, RopeLlama3, RopeYarn)),
        *((kind, {"base": 1.7e308}) for kind in (RopeLlama3, RopeYarn)),
        (RopeLlama3, {"original_context": 2**63 - 1}),
        (RopeLlama3, {"original_context": 1}),
        (RopeLlama3, {"low_freq_factor": 0.0, "high_freq_factor": 5e-324}),
        (RopeLlama3, {"low_freq_factor": 1e308, "high_freq_factor": 1.7e308}),
        (RopeYarn, {"original_context": 2**63 - 1, "base": 1e9}),
        (RopeYarn, {"base": 1.001, "original_context": 7, "beta_fast": 1e3}),
        (RopeYarn, {"beta_fast": 1.7e308}),
        (RopeYarn, {"beta_slow": 5e-324}),
        (RopeYarn, {"attention_factor": 900.0}),
        (RopeYarn, {"attention_factor": 2e-3}),
    ],
)
def test_extreme_settings_of_a_scaled_rope_stay_numbers(kind: type[Rope], settings: dict[str, Any]) -> None:
    part = kind(**settings)
    assert part.check(model(kind="rope")) is None
    for d_head in (4, 64) if kind is RopeNtk else (2, 64):
        assert np.isfinite(part.rotation(np.arange(9), d_head).angles).all()
    assert np.isfinite(part.attention_scale)


@pytest.mark.parametrize(
    ("kind", "settings", "why"),
    [
        ("rope_linear", {"factor": 0.5}, r"rope_linear.* factor=0\.5.*factor=1"),
        ("rope_ntk", {"factor": 0}, "rope_ntk.* factor=0 would shrink it"),
        *(
            (kind, {"factor": 0.5}, "factor=0.5 would shrink it. Use factor=1")
            for kind in ("rope_llama3", "rope_yarn")
        ),
        *(
            (kind, {"layout": "thirds"}, rf"{kind}.*halves and pairs")
            for kind in ("rope_linear", "rope_ntk", "rope_llama3", "rope_yarn")
        ),
        *(
            (kind, {"original_context": size}, why)
            for kind in ("rope_llama3", "rope_yarn")
            for size, why in ((0, "original_context.*got 0"), (10**400, "original_context must be a whole"))
        ),
        ("rope_llama3", {"low_freq_factor": 4.0}, "low_freq_factor=4 must be below high_freq_factor=4"),
        ("rope_yarn", {"beta_slow": 32.0}, "beta_slow=32 must be above 0 and below beta_fast=32"),
        ("rope_yarn", {"beta_slow": 0.0}, "beta_slow=0 must be above 0"),
        ("rope_yarn", {"base": 1.0}, "base=1"),
        ("rope_yarn", {"original_context": 6}, 'beta_slow=1 .*"rope_linear"'),
        ("rope_yarn", {"attention_factor": 1e200}, "attention_factor² = inf"),
    ],
)
def test_a_scaled_rope_says_which_settings_cannot_be(kind: str, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        model(kind=kind, **settings)


def test_ntk_rope_refuses_a_single_pair() -> None:
    with pytest.raises(ConfigError, match=r"d_head=2 has one. Use d_head=4 or more"):
        ModelConfig.from_dict(model(kind="rope").to_dict() | {"d_head": 2, "positions": "rope_ntk"})

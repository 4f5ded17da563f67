"""Llama 3.1's rotary positions against `transformers` and by hand."""

from typing import Any

import numpy as np
import pytest

from pellucid.base.errors import ConfigError
from pellucid.parts.positions.rope import Rope
from pellucid.parts.positions.rope_llama3 import RopeLlama3
from tests.parts.positions.test_rope_linear import SIZES, model, rounding, theirs

SETTINGS: list[dict[str, Any]] = [
    {},
    {"factor": 32.0},
    {"factor": 3.5, "low_freq_factor": 0.5, "high_freq_factor": 20.0, "original_context": 300},
]


def their_names(llama: RopeLlama3) -> dict[str, Any]:
    return {
        "factor": llama.factor,
        "low_freq_factor": llama.low_freq_factor,
        "high_freq_factor": llama.high_freq_factor,
        "original_max_position_embeddings": llama.original_context,
    }


def test_llama3_rope_by_hand() -> None:
    """D = 8: in 8192 positions the pairs turn 1303.8, 130.38, 13.038 and 1.3038 times. Three turn more than 4
    times and stay; the last is 0.3038/3 = 0.10127 of the way from slowed to kept."""
    last = 0.001 * (0.10127 + (1 - 0.10127) / 8)
    frequencies = RopeLlama3().frequencies(8)
    assert frequencies[:3] == pytest.approx([1, 0.1, 0.01], rel=1e-15)
    assert frequencies[3] == pytest.approx(last, rel=3e-5)


@pytest.mark.parametrize(("d_head", "base"), SIZES)
@pytest.mark.parametrize("settings", SETTINGS)
def test_llama3_rope_rotates_as_in_transformers(d_head: int, base: float, settings: dict[str, Any]) -> None:
    llama = RopeLlama3(base=base, **settings)
    wanted, _ = theirs("llama3", d_head, base, **their_names(llama))
    assert llama.frequencies(d_head) == pytest.approx(wanted, rel=1e-12)


def test_transformers_rounds_llama3_rope_to_float32() -> None:
    llama = RopeLlama3(base=500_000.0)
    rounded, _ = theirs("llama3", 128, 500_000.0, exact=False, **their_names(llama))
    assert 1e-9 < rounding(llama.frequencies(128), rounded) < 1e-6


def test_llama3_rope_keeps_what_rotates_often_and_slows_what_does_not() -> None:
    plain, scaled = (rope.frequencies(128) for rope in (Rope(base=5e5), RopeLlama3(base=5e5)))
    turns = 8192 * plain / (2 * np.pi)
    assert np.array_equal(scaled[turns > 4], plain[turns > 4])
    assert scaled[turns < 1] == pytest.approx(plain[turns < 1] / 8, rel=1e-15)
    between = (turns > 1) & (turns < 4)
    assert between.any() and (scaled < plain)[between].all() and (scaled > plain / 8)[between].all()


@pytest.mark.parametrize(
    "settings",
    [
        {"factor": 1e300},
        {"original_context": 2**63 - 1},
        {"original_context": 1},
        {"low_freq_factor": 0.0, "high_freq_factor": 5e-324},
        {"low_freq_factor": 1e308, "high_freq_factor": 1.7e308},
        {"base": 1.7e308},
    ],
)
def test_extreme_settings_of_llama3_rope_stay_numbers(settings: dict[str, Any]) -> None:
    llama = RopeLlama3(**settings)
    assert llama.check(model(kind="rope")) is None
    assert np.isfinite(llama.rotation(np.arange(9), 64).angles).all()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"factor": 0.5}, "factor=0.5 would shrink it. Use factor=1 or more"),
        ({"original_context": 0}, "original_context.*got 0"),
        ({"original_context": 10**400}, "original_context must be a whole number"),
        (
            {"low_freq_factor": 4.0},
            "low_freq_factor=4 must be below high_freq_factor=4. Llama 3.1 has 1 and 4",
        ),
        ({"layout": "thirds"}, "rope_llama3 has the layouts halves and pairs"),
    ],
)
def test_llama3_rope_says_which_settings_cannot_be(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        model(kind="rope_llama3", **settings)

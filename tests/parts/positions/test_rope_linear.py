"""Position interpolation against `transformers` and by hand."""

import contextlib
from typing import Any

import numpy as np
import pytest

from pellucid.base.errors import ConfigError
from pellucid.config import ModelConfig
from pellucid.parts.positions.rope import Rope
from pellucid.parts.positions.rope_linear import RopeLinear
from tests.golden.make_huggingface import float64_throughout

SIZES = [(64, 10_000.0), (128, 500_000.0), (6, 100.0)]


def theirs(
    rope_type: str, d_head: int, base: float, exact: bool = True, length: int | None = None, **settings: Any
) -> tuple[np.ndarray, float]:
    """The frequencies and the attention factor of `transformers`, in float64 or as it makes them."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    with float64_throughout() if exact else contextlib.nullcontext():
        config = LlamaConfig(
            hidden_size=2 * d_head,
            num_attention_heads=2,
            head_dim=d_head,
            max_position_embeddings=1024,
            rope_parameters={"rope_type": rope_type, "rope_theta": base, **settings},
        )
        frequencies, factor = ROPE_INIT_FUNCTIONS[rope_type](config, seq_len=length)
        assert str(frequencies.dtype) == ("torch.float64" if exact else "torch.float32")
        return frequencies.numpy(), factor


def rounding(exact: np.ndarray, rounded: np.ndarray) -> float:
    """The largest relative departure of numbers from those that they should be."""
    return float(np.max(np.abs(rounded - exact) / exact))


def model(**settings: Any) -> ModelConfig:
    sizes = {"vocab_size": 5, "context_length": 6, "n_layer": 1, "n_head": 2, "d_model": 16}
    return ModelConfig.from_dict(sizes | {"positions": settings})


def test_linear_rope_by_hand() -> None:
    assert RopeLinear(factor=4.0).frequencies(4) == pytest.approx([1 / 4, 1 / 400], rel=1e-15)


def test_a_position_of_linear_rope_rotates_as_the_one_that_it_is_squeezed_to() -> None:
    squeezed = RopeLinear(factor=4.0).rotation(np.array([12]), 64).angles
    assert squeezed == pytest.approx(Rope().rotation(np.array([3]), 64).angles, rel=1e-14)


@pytest.mark.parametrize(("d_head", "base"), SIZES)
@pytest.mark.parametrize("factor", [1.0, 2.5, 32.0])
def test_linear_rope_rotates_as_in_transformers(d_head: int, base: float, factor: float) -> None:
    wanted, _ = theirs("linear", d_head, base, factor=factor)
    assert RopeLinear(base=base, factor=factor).frequencies(d_head) == pytest.approx(wanted, rel=1e-12)


def test_transformers_rounds_linear_rope_to_float32() -> None:
    rounded, _ = theirs("linear", 64, 10_000.0, exact=False, factor=2.5)
    assert 1e-9 < rounding(RopeLinear(factor=2.5).frequencies(64), rounded) < 1e-6


def test_an_extreme_factor_of_linear_rope_stops_the_rotation() -> None:
    assert np.isfinite(RopeLinear(factor=1e300).rotation(np.arange(9), 64).angles).all()


def test_linear_rope_refuses_to_shrink_the_context_and_what_rope_refuses() -> None:
    with pytest.raises(ConfigError, match=r"rope_linear.* factor=0\.5.*factor=1"):
        model(kind="rope_linear", factor=0.5)
    with pytest.raises(ConfigError, match=r"rope_linear.*halves and pairs"):
        model(kind="rope_linear", layout="thirds")

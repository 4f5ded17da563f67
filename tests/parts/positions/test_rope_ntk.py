"""NTK-aware rotary positions against `transformers` and by hand."""

import numpy as np
import pytest

from pellucid.base.errors import ConfigError
from pellucid.config import ModelConfig
from pellucid.parts.positions.rope import Rope
from pellucid.parts.positions.rope_ntk import RopeNtk
from tests.parts.positions.test_rope_linear import SIZES, model, rounding, theirs


def test_ntk_rope_by_hand() -> None:
    """base' = 10000 · 4^(4/2) = 160000, and 1 / √160000 = 1/400."""
    assert RopeNtk(factor=4.0).frequencies(4) == pytest.approx([1, 1 / 400], rel=1e-15)


def test_ntk_rope_keeps_the_fastest_pair_and_slows_the_slowest_by_the_factor() -> None:
    plain, scaled = Rope().frequencies(64), RopeNtk(factor=7.0).frequencies(64)
    assert plain[0] == scaled[0] == 1
    assert plain[-1] / scaled[-1] == pytest.approx(7, rel=1e-14)


@pytest.mark.parametrize(("d_head", "base"), SIZES)
@pytest.mark.parametrize("factor", [1.0, 2.5, 32.0])
def test_ntk_rope_rotates_as_in_transformers(d_head: int, base: float, factor: float) -> None:
    """`transformers` has the dynamic form alone: with its own factor at 1, the base follows the length."""
    wanted, _ = theirs("dynamic", d_head, base, length=int(factor * 1024), factor=1.0)
    assert RopeNtk(base=base, factor=factor).frequencies(d_head) == pytest.approx(wanted, rel=1e-12)


def test_transformers_rounds_ntk_rope_to_float32() -> None:
    rounded, _ = theirs("dynamic", 64, 10_000.0, exact=False, length=2560, factor=1.0)
    assert 1e-9 < rounding(RopeNtk(factor=2.5).frequencies(64), rounded) < 1e-6


def test_an_extreme_factor_of_ntk_rope_does_not_outgrow_its_base() -> None:
    for d_head in (4, 64):
        assert np.isfinite(RopeNtk(factor=1e300).rotation(np.arange(9), d_head).angles).all()


def test_ntk_rope_refuses_a_single_pair_and_to_shrink_the_context() -> None:
    with pytest.raises(ConfigError, match=r"d_head=2 has one. Use d_head=4 or more"):
        ModelConfig(
            vocab_size=5, context_length=6, n_layer=1, n_head=2, d_model=8, d_head=2, positions=RopeNtk()
        )
    with pytest.raises(ConfigError, match=r"rope_ntk.* factor=0 would shrink it"):
        model(kind="rope_ntk", factor=0)
    with pytest.raises(ConfigError, match=r"rope_ntk.*halves and pairs"):
        model(kind="rope_ntk", layout="thirds")

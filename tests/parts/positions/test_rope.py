"""Rotary angles and both layouts against numbers worked out by hand."""

import numpy as np
import pytest

from pellucid.parts.positions.rope import Rope
from pellucid.reference.ops.rotate import rotate


def test_rope_angles_slow_down_with_the_head_width_not_the_model_width() -> None:
    rotation = Rope().rotation(np.arange(2), 64)
    assert rotation.angles[1, 0] == 1.0
    assert rotation.angles[1, 31] == pytest.approx(1.333521e-4, rel=1e-6)


def test_rope_rotates_one_pair_by_one_radian() -> None:
    rotation = Rope().rotation(np.array([1]), 2)
    for layout in ("halves", "pairs"):
        assert rotate.forward(np.array([[1.0, 0.0]]), rotation.angles, layout)[0] == pytest.approx(
            [0.540302, 0.841471], abs=1e-6
        )
        assert rotate.forward(np.array([[0.0, 1.0]]), rotation.angles, layout)[0] == pytest.approx(
            [-0.841471, 0.540302], abs=1e-6
        )


def test_rope_layouts_pair_other_channels() -> None:
    """A quarter turn of the first pair alone sends channel 0 to its partner."""
    angles, x = np.array([[np.pi / 2, 0.0]]), np.array([[1.0, 2.0, 3.0, 4.0]])
    assert rotate.forward(x, angles, "halves")[0] == pytest.approx([-3, 2, 1, 4])
    assert rotate.forward(x, angles, "pairs")[0] == pytest.approx([-2, 1, 3, 4])

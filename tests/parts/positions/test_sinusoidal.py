"""Sinusoidal rows against the table of Vaswani et al. computed by hand."""

import numpy as np
import pytest

from pellucid.parts.positions.sinusoidal import Sinusoidal


def test_sinusoidal_rows_are_sin_and_cos_of_slowing_clocks() -> None:
    rows = Sinusoidal().rows(np.arange(3), 8)
    assert rows[0] == pytest.approx([0, 1, 0, 1, 0, 1, 0, 1])
    by_hand = [0.841471, 0.540302, 0.099833, 0.995004, 0.010000, 0.999950, 0.001000, 1.000000]
    assert rows[1] == pytest.approx(by_hand, abs=5e-7)


def test_sinusoidal_products_depend_on_the_distance_alone() -> None:
    rows = Sinusoidal().rows(np.arange(20), 16)
    assert rows[3] @ rows[7] == pytest.approx(rows[11] @ rows[15], abs=1e-12)

"""Averaging momentum against torch's SGD at a shorter rate, and by hand."""

import numpy as np
import pytest
import torch

from pellucid.parts.optimizers.averaging_momentum import AveragingMomentum
from tests.parts.optimizers.steps import ours, theirs


def test_averaging_momentum_by_hand() -> None:
    """m = 0.5 · 8 = 4 and 2 − 0.4 = 1.6; then m = 0.5 · 4 + 0.5 · 4.096 = 4.048 and 1.6 − 0.4048 = 1.1952."""
    got = ours(AveragingMomentum(lr=0.1, beta=0.5), 2, np.array([2.0]))
    assert [float(x[0]) for x in got] == pytest.approx([1.6, 1.1952])


def test_it_is_torchs_accumulating_one_at_one_minus_beta_of_the_rate() -> None:
    wanted = theirs(lambda p: torch.optim.SGD(p, lr=0.1 * 0.2, momentum=0.8), 4)
    np.testing.assert_allclose(ours(AveragingMomentum(lr=0.1, beta=0.8), 4), wanted, rtol=1e-12)

"""Accumulating momentum against torch's SGD, and by hand."""

import numpy as np
import pytest
import torch

from pellucid.errors import ConfigError
from pellucid.parts.optimizers.momentum import Momentum
from tests.parts.optimizers.steps import ours, theirs


def test_momentum_by_hand() -> None:
    """2 − 0.1 · 8 = 1.2; then m = 0.5 · 8 + 1.728 = 5.728 and 1.2 − 0.5728 = 0.6272."""
    got = ours(Momentum(lr=0.1, beta=0.5), 2, np.array([2.0]))
    assert [float(x[0]) for x in got] == pytest.approx([1.2, 0.6272])


def test_it_is_torchs() -> None:
    wanted = theirs(lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.8), 4)
    np.testing.assert_allclose(ours(Momentum(lr=0.02, beta=0.8), 4), wanted, rtol=1e-12)


def test_a_beta_of_1_would_never_forget() -> None:
    with pytest.raises(ConfigError, match=r"momentum.*beta.*below 1"):
        Momentum(beta=1.0)

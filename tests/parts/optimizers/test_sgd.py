"""Gradient descent against torch's, and by hand."""

import numpy as np
import pytest
import torch

from pellucid.errors import ConfigError
from pellucid.parts.optimizers import OptimizerConfig
from pellucid.parts.optimizers.sgd import Sgd
from tests.parts.optimizers.steps import ours, theirs


def test_gradient_descent_by_hand() -> None:
    """2 − 0.1 · 8 = 1.2; 1.2 − 0.1 · 1.728 = 1.0272."""
    assert [float(x[0]) for x in ours(Sgd(lr=0.1), 2, np.array([2.0]))] == pytest.approx([1.2, 1.0272])


def test_it_is_torchs() -> None:
    wanted = theirs(lambda p: torch.optim.SGD(p, lr=0.05), 4)
    np.testing.assert_allclose(ours(Sgd(lr=0.05), 4), wanted, rtol=1e-13)


def test_it_has_no_other_setting() -> None:
    with pytest.raises(ConfigError, match=r"'sgd'.*'beta'.*lr"):
        OptimizerConfig.read({"kind": "sgd", "beta": 0.9})

"""Adam with L2 against torch's Adam with `weight_decay`; it is not AdamW."""

import numpy as np
import torch

from pellucid.parts.optimizers.adam_l2 import AdamL2
from pellucid.parts.optimizers.adamw import AdamW
from tests.parts.optimizers.steps import START, ours, theirs


def test_it_is_torchs_adam_with_weight_decay() -> None:
    wanted = theirs(lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.3), 5)
    np.testing.assert_allclose(ours(AdamL2(lr=0.1, weight_decay=0.3), 5), wanted, rtol=1e-12)


def test_it_is_not_adamw() -> None:
    """Its first step is the rate alone, λθ or not; AdamW takes ηλθ off besides."""
    l2, decayed = (ours(kind(lr=0.1, beta2=0.999, weight_decay=0.3), 1)[0] for kind in (AdamL2, AdamW))
    np.testing.assert_allclose(l2 - decayed, 0.1 * 0.3 * START, atol=1e-4)
    assert np.abs(l2 - decayed).max() > 0.01


def test_a_gain_gets_no_penalty() -> None:
    start = np.array([1.0, 2.0])
    wanted = theirs(lambda p: torch.optim.Adam(p, lr=0.1), 3, start)
    got = ours(AdamL2(lr=0.1, weight_decay=0.3), 3, start, "final_norm.weight")
    np.testing.assert_allclose(got, wanted, rtol=1e-12)

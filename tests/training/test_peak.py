"""The peak is measured beside a run, and leaves no trace in it."""

import torch

from pellucid.training.peak import _measured


def test_measuring_does_not_touch_the_dice_of_the_run() -> None:
    before = torch.get_rng_state()
    assert _measured.__wrapped__("cpu", "float32", 1) > 1e8
    assert torch.equal(torch.get_rng_state(), before)

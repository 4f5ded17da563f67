"""AdamW against torch's, GPT-3's settings, and what does not decay."""

import numpy as np
import pytest
import torch

from pellucid.parts.optimizers.adamw import AdamW
from tests.parts.optimizers.steps import START, ours, theirs


def test_it_is_torchs() -> None:
    wanted = theirs(lambda p: torch.optim.AdamW(p, lr=0.1, betas=(0.9, 0.95), weight_decay=0.3), 5)
    np.testing.assert_allclose(ours(AdamW(lr=0.1, weight_decay=0.3), 5), wanted, rtol=1e-12)


def test_its_settings_are_gpt_3s() -> None:
    """Brown et al. 2020, appendix B; the rate is that of the smallest model in table 2.1."""
    part = AdamW()
    assert (part.lr, part.beta1, part.beta2, part.eps, part.weight_decay) == (6e-4, 0.9, 0.95, 1e-8, 0.1)


@pytest.mark.parametrize("name", ["embed.weight", "positions.weight", "position_bias.weight"])
def test_a_table_that_is_looked_up_does_not_decay(name: str) -> None:
    wanted = theirs(lambda p: torch.optim.AdamW(p, lr=0.1, betas=(0.9, 0.95), weight_decay=0.0), 3)
    np.testing.assert_allclose(ours(AdamW(lr=0.1, weight_decay=0.3), 3, START, name), wanted, rtol=1e-12)

"""Adam against torch's, by hand, and the settings it refuses."""

import numpy as np
import pytest
import torch

from pellucid.errors import ConfigError
from pellucid.parts.optimizers.adam import Adam
from tests.parts.optimizers.steps import ours, theirs


def test_the_first_step_is_the_rate_by_hand() -> None:
    (got,) = ours(Adam(lr=0.01), 1, np.array([2.0, -5.0]))
    np.testing.assert_allclose(got, [1.99, -4.99], rtol=1e-9)


def test_it_is_torchs() -> None:
    wanted = theirs(lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.8, 0.9), eps=1e-3), 5)
    got = ours(Adam(lr=0.1, beta1=0.8, beta2=0.9, eps=1e-3), 5)
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_beta2_rises_while_it_warms_up() -> None:
    part = Adam(beta2=0.999, beta2_start=0.99, beta2_warmup=90)
    assert [part.betas_at(step)[1] for step in (0, 10, 90, 91)] == pytest.approx([0.99, 0.991, 0.999, 0.999])
    assert Adam().betas_at(0) == (0.9, 0.999)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"beta1": 1.0}, "needs beta1 from 0 to below 1, not 1"),
        ({"eps": 0.0}, "eps must be above 0; 1e-8 is usual"),
        ({"beta2_start": 0.9995, "beta2_warmup": 5}, "beta2_start=0.9995 must not be above beta2=0.999"),
        ({"beta2_start": 0.99}, "set both, or neither"),
        ({"beta2_warmup": 5}, "set both, or neither"),
        ({"beta2_warmup": -5}, "set both, or neither"),
    ],
)
def test_settings_that_cannot_train_are_refused(settings: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=f"the optimizer adam .*{words}"):
        Adam(**settings)  # type: ignore[arg-type]

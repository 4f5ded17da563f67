"""Muon against torch's: in float64 to the last digits, in bfloat16 as near as that type allows."""

import numpy as np
import pytest
import torch

from pellucid.errors import ConfigError
from pellucid.parts.optimizers.muon import MuonConfig, hidden
from tests.parts.optimizers.steps import START, ours, theirs


@pytest.mark.parametrize("start", [START, START.T.copy()], ids=["wide", "tall"])
def test_it_is_torchs_in_float64(start: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    wanted = theirs(lambda p: torch.optim.Muon(p, lr=0.02, weight_decay=0.1, momentum=0.95), 4, start)
    np.testing.assert_allclose(ours(MuonConfig(), 4, start), wanted, rtol=1e-12, atol=1e-13)


def test_it_is_near_torchs_in_bfloat16() -> None:
    """bfloat16 has eight bits, so each of four steps may be a few hundredths of the rate off."""
    wanted = theirs(lambda p: torch.optim.Muon(p, lr=0.02, weight_decay=0.1, momentum=0.95), 4)
    got = ours(MuonConfig(), 4)
    assert np.abs(np.array(got) - wanted).max() < 4 * 0.02 * 0.05


def test_what_is_no_matrix_of_a_block_is_adamws() -> None:
    assert hidden("blocks.11.attn.q_proj.weight", (8, 8))
    for name, shape in (
        ("embed.weight", (9, 8)),
        ("unembed.weight", (9, 8)),
        ("positions.weight", (4, 8)),
        ("blocks.0.attn_norm.weight", (8,)),
        ("blocks.0.mlp.up_proj.bias", (8,)),
    ):
        assert not hidden(name, shape)
    wanted = theirs(lambda p: torch.optim.AdamW(p, lr=0.1, betas=(0.9, 0.95), weight_decay=0.3), 3)
    got = ours(MuonConfig(adam_lr=0.1, adam_weight_decay=0.3), 3, START, "unembed.weight")
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"steps": 0}, "takes 1 to 99 steps of Newton and Schulz, not 0; 5 is usual"),
        ({"adam_beta2": 1.0}, "needs adam_beta2 from 0 to below 1"),
        ({"adam_beta2_start": 0.9}, "set both, or neither"),
    ],
)
def test_settings_that_cannot_train_are_refused(settings: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        MuonConfig(**settings)  # type: ignore[arg-type]

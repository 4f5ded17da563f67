"""KL, log-likelihoods and changed top tokens, against numbers worked out by hand and by torch."""

import math

import numpy as np
import pytest
import torch

from pellucid.base.errors import ConfigError
from pellucid.evaluation.quantization import divergence
from pellucid.evaluation.quantization.divergence import Divergence, compare_logits


def test_two_coins_by_hand() -> None:
    """p = (1/2, 1/2), q = (3/4, 1/4): KL = ½ ln(2/3) + ½ ln 2 = ½ ln(4/3)."""
    p, q = torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 1.0]]).log()
    found = compare_logits(p, q, torch.tensor([1]))
    assert found.kl[0] == pytest.approx(math.log(4 / 3) / 2, abs=1e-7)
    assert found.reference_nll[0] == pytest.approx(math.log(2)) and found.nll[0] == pytest.approx(math.log(4))
    assert found.is_flip.tolist() == [False]


def test_equal_logits_diverge_by_exactly_zero() -> None:
    logits = 30 * torch.randn(50, 1000, generator=torch.Generator().manual_seed(0))
    found = compare_logits(logits, logits.clone(), torch.zeros(50, dtype=torch.int64))
    assert not found.kl.any() and not found.is_flip.any()
    assert np.array_equal(found.nll, found.reference_nll)


def test_chunks_of_rows_do_not_change_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    make = torch.Generator().manual_seed(0)
    ours, theirs = (torch.randn(7, 11, generator=make) for _ in range(2))
    targets = torch.arange(7)
    whole = compare_logits(ours, theirs, targets)
    monkeypatch.setattr(divergence, "CHUNK", 22)
    parts = compare_logits(ours, theirs, targets)
    for name in ("kl", "nll", "reference_nll", "top", "reference_top"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name))
    wanted = torch.nn.functional.kl_div(
        theirs.double().log_softmax(-1), ours.double().log_softmax(-1), reduction="none", log_target=True
    ).sum(-1)
    assert np.allclose(whole.kl, wanted.numpy(), atol=1e-12)
    assert whole.is_flip.tolist() == (ours.argmax(-1) != theirs.argmax(-1)).tolist()


def test_parts_are_joined_and_selected_in_order() -> None:
    make = torch.Generator().manual_seed(0)
    ours, theirs = (torch.randn(6, 5, generator=make) for _ in range(2))
    whole = compare_logits(ours, theirs, torch.arange(6) % 5)
    again = Divergence.join([whole.select(slice(0, 4)), whole.select(slice(4, 6))])
    assert len(again) == 6 and np.array_equal(again.kl, whole.kl)


def test_logits_that_are_not_finite_are_refused() -> None:
    logits = torch.zeros(1, 3)
    with pytest.raises(ConfigError, match="NaN"):
        compare_logits(logits, torch.full((1, 3), torch.nan), torch.tensor([0]))

"""The kernel that scores logits gives the loss and the gradient that the chunked loss defines."""

import pytest
import torch
from torch import Tensor

from pellucid.base.names import IGNORE_INDEX
from pellucid.engine.chunked_loss import _score_chunk

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    pytest.importorskip("triton")


@pytest.mark.parametrize("vocabulary", [7, 4096, 10_000])
@pytest.mark.parametrize(("smoothing", "z"), [(0.0, 0.0), (0.1, 1e-3)])
def test_the_kernel_gives_the_loss_and_its_gradient(vocabulary: int, smoothing: float, z: float) -> None:
    """Rows shorter than a block, as long as one, and longer; targets at both ends, and one not counted."""
    from pellucid.engine.cross_entropy_kernel import score

    torch.manual_seed(0)
    logits = torch.randn(5, vocabulary, device=DEVICE)
    targets = torch.tensor([0, 3, IGNORE_INDEX, vocabulary - 1, 5], device=DEVICE)
    total, grads = _score_chunk(logits.double(), targets, None, smoothing, z, needs_grad=True)
    assert grads is not None
    grads = torch.where((targets != IGNORE_INDEX)[:, None], grads, 0.0)
    losses: Tensor = score(logits, targets, smoothing, z, IGNORE_INDEX)
    assert float(losses[2]) == 0
    assert losses.sum().item() == pytest.approx(total.item(), rel=1e-6)
    assert torch.allclose(logits.double(), grads, atol=1e-6)


def test_a_logit_that_is_not_a_number_makes_the_loss_none() -> None:
    from pellucid.engine.cross_entropy_kernel import score

    logits = torch.zeros(1, 9, device=DEVICE)
    logits[0, 4] = torch.nan
    assert score(logits, torch.tensor([2], device=DEVICE), 0.0, 0.0, IGNORE_INDEX).isnan().all()


def test_a_row_that_does_not_count_leaves_nothing_whatever_is_in_it() -> None:
    from pellucid.engine.cross_entropy_kernel import score

    logits = torch.full((1, 9), torch.nan, device=DEVICE)
    assert float(score(logits, torch.tensor([IGNORE_INDEX], device=DEVICE), 0.0, 0.0, IGNORE_INDEX)) == 0
    assert (logits == 0).all()

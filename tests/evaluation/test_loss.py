"""The loss of a model: each counted target counts once; bits per byte, gap and fraction learned follow."""

import math

import pytest
import torch

from pellucid.base.names import IGNORE_INDEX
from pellucid.evaluation import loss
from pellucid.evaluation.loss import bits_per_byte, compute_loss, fraction_learned, gap_to_floor

NO = IGNORE_INDEX
LOG_PROBS = torch.tensor([0.25, 0.5, 0.25]).log()


def forward(ids: torch.Tensor) -> torch.Tensor:
    """A model that gives token 1 half of the probability and tokens 0 and 2 a quarter each, everywhere."""
    return LOG_PROBS.expand(*ids.shape, 3)


def evaluate(targets: list[list[list[int]]]) -> tuple[float, float]:
    tensors = [torch.tensor(batch) for batch in targets]
    return compute_loss(forward, [(torch.zeros_like(batch), batch) for batch in tensors], 3)


def test_targets_of_unequal_batches_count_alike() -> None:
    loss, accuracy = evaluate([[[1, 1, 1, 0]], [[2, NO, NO, NO]]])
    assert accuracy == 3 / 5
    assert loss == pytest.approx((3 * math.log(2) + 2 * math.log(4)) / 5)


def test_without_targets_the_loss_is_nan() -> None:
    assert all(map(math.isnan, evaluate([])))
    assert all(map(math.isnan, evaluate([[[NO, NO]]])))


def test_sums_are_reduced_over_all_ranks() -> None:
    batch = torch.tensor([[1, 0]])
    other = (3 * math.log(2), 3, 3)
    found = compute_loss(
        forward, [(batch, batch)], 3, lambda *sums: [a + b for a, b in zip(sums, other, strict=True)]
    )
    assert found == (pytest.approx((4 * math.log(2) + math.log(4)) / 5), 4 / 5)


def test_a_batch_with_too_many_logits_is_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[int]()

    def counted(ids: torch.Tensor) -> torch.Tensor:
        seen.append(len(ids))
        return forward(ids)

    batch = torch.tensor([[1, 0], [1, 1], [2, 1], [NO, 1]])
    whole = compute_loss(counted, [(batch, batch)], 3)
    monkeypatch.setattr(loss, "MAX_LOGITS", 3 * 2 * 3)
    apart = compute_loss(counted, [(batch, batch)], 3)
    assert seen == [4, 3, 1]
    assert apart.loss == pytest.approx(whole.loss, rel=1e-6) and apart.accuracy == whole.accuracy


def test_what_follows_from_the_loss() -> None:
    assert bits_per_byte(math.log(2), 2.0) == 0.5 and bits_per_byte(1.0, None) is None
    assert gap_to_floor(1.5, 1.0) == 0.5 and gap_to_floor(1.5, None) is None
    assert (fraction_learned(2.0, 2.0, 1.0), fraction_learned(1.0, 2.0, 1.0)) == (0, 1)
    assert fraction_learned(1.0, None, 0.0) is None

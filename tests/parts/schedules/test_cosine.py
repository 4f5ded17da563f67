"""The cosine against torch's CosineAnnealingLR, transformers' schedule, and a hand calculation."""

import math

import pytest
import torch
from transformers.optimization import (
    get_cosine_schedule_with_warmup,
    get_cosine_with_min_lr_schedule_with_warmup,
)

from pellucid.parts.schedules.cosine import Cosine
from tests.parts.schedules.theirs import factors


def ours(part: Cosine, steps: int, count: int) -> list[float]:
    return [part.factor(step, steps) for step in range(count)]


def test_a_cosine_by_hand() -> None:
    """A third of the way cos(π/3) = 1/2, half of it 0, two thirds −1/2."""
    part = Cosine(warmup=2)
    assert ours(part, 8, 9) == pytest.approx(
        [0.5, 1, 1, (1 + math.sqrt(3) / 2) / 2, 0.75, 0.5, 0.25, (1 - math.sqrt(3) / 2) / 2, 0], abs=1e-15
    )
    assert Cosine(floor=0.1).factor(5, 10) == pytest.approx(0.55)


def test_it_is_torchs_cosine_annealing() -> None:
    theirs = factors(
        lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20, eta_min=0.1), 21
    )
    assert ours(Cosine(floor=0.1), 20, 21) == pytest.approx(theirs, rel=1e-12)


def test_after_the_warm_up_it_is_transformers() -> None:
    theirs = factors(lambda optimizer: get_cosine_schedule_with_warmup(optimizer, 5, 30), 31)
    assert ours(Cosine(warmup=5), 30, 31)[5:] == pytest.approx(theirs[5:], abs=1e-15)
    theirs = factors(
        lambda optimizer: get_cosine_with_min_lr_schedule_with_warmup(optimizer, 5, 30, min_lr_rate=0.2), 31
    )
    assert ours(Cosine(warmup=5, floor=0.2), 30, 31)[5:] == pytest.approx(theirs[5:], abs=1e-15)


def test_past_the_end_it_stays_where_the_formula_alone_would_rise_again() -> None:
    """Unclamped, half of (1 + cos 1.2π) is 0.095, and at twice the length 1."""
    part = Cosine()
    assert (1 + math.cos(1.2 * math.pi)) / 2 == pytest.approx(0.095, abs=5e-4)
    assert part.factor(120, 100) == part.factor(200, 100) == part.factor(10**9, 100) == 0
    assert Cosine(floor=0.1).factor(200, 100) == pytest.approx(0.1)

"""How a model is judged: each target that counts once, by its loss and by whether it was the likeliest."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pellucid.data.rows import NOT_COUNTED
from pellucid.training.validation import judge

NO = NOT_COUNTED


def judged(batches: list[list[list[int]]], most: int = 0) -> tuple[float, float]:
    """A model that gives token 1 half of the probability and tokens 0 and 2 a quarter each, everywhere."""
    rows: list[Any] = [(np.zeros_like(targets), np.array(targets)) for targets in batches]
    source: Any = SimpleNamespace(validation=rows)
    guess = torch.tensor([0.25, 0.5, 0.25]).log()
    return judge(lambda ids: guess.expand(*ids.shape, 3), source, most, torch.device("cpu"))


def test_targets_of_unequal_batches_count_alike() -> None:
    loss, accuracy = judged([[[1, 1, 1, 0]], [[2, NO, NO, NO]]])
    assert accuracy == 3 / 5
    assert loss == pytest.approx((3 * math.log(2) + 2 * math.log(4)) / 5)


def test_only_so_many_batches_are_judged_where_that_is_asked() -> None:
    assert judged([[[1, 1]], [[0, 0]]], most=1) == (pytest.approx(math.log(2)), 1.0)


def test_nothing_to_judge_is_no_number() -> None:
    assert all(map(math.isnan, judged([])))

"""A token that is drawn without a record is the one that is drawn with it."""

import numpy as np
import pytest
import torch

from pellucid.generation.samplers.drawn_token import FEW, draw_bits, draw_id, draw_token


@pytest.mark.parametrize("count", [1, 2, 50, 2048, FEW + 1])
@pytest.mark.parametrize("levels", [3, 1000, 2**40])
def test_the_id_without_a_ranking_is_the_rankings(count: int, levels: int) -> None:
    """With few levels most scores are equal, so that the smaller id comes first."""
    numbers = torch.Generator().manual_seed(count)
    for u in [None, 0.0, 0.25, 0.5, 0.9, 1 - 2.0**-53]:
        scores = torch.randn(count, generator=numbers, dtype=torch.float64)
        scores = (scores * levels).round() / levels
        scores[torch.rand(count, generator=numbers) < 0.2] = -torch.inf
        drawn = draw_token(scores, u)
        assert draw_id(scores, u) == (None if drawn is None else drawn.id)


def test_nothing_is_drawn_where_every_score_is_removed() -> None:
    for u in (None, 0.5):
        assert draw_id(torch.full((5,), -torch.inf, dtype=torch.float64), u) is None


def test_philox_is_that_of_numpy() -> None:
    for key in ((0, 0), (2**64 - 1, 3), (123456789, 2**32)):
        numbers = np.random.Philox(key=np.array(key, np.uint64), counter=[6, 0, 0, 0])
        assert draw_bits(key, 7) == int(numbers.random_raw())

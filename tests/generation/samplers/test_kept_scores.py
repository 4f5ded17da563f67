"""A long row that is narrowed to its kept tokens gives what the whole row gives, with its ledger or not."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pellucid.generation.samplers.chain import Chosen, Wanted, _process_together, choose, process
from pellucid.generation.samplers.kept_scores import FEW, KeptScores, find_candidates
from pellucid.generation.samplers.row_operations import find_kth_largest
from tests.generation.samplers.test_chain import make_states

SIZE = 2 * FEW
SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0.7, "top_k": 50},
    {"temperature": 1.3, "top_k": 50, "top_p": 0.9, "min_p": 0.01},
    {"temperature": 1.0, "top_p": 0.8},
    {"temperature": 1.0, "min_p": 0.05, "repetition_penalty": 1.2},
    {"temperature": 0.5, "typical_p": 0.5},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 2.0},
    {"temperature": 1.0, "top_k": SIZE},
    {"temperature": 1.0, "top_k": 20, "logit_bias": {7: 30.0}, "banned_tokens": (3, 4)},
    {"temperature": 0.0, "min_new_tokens": 2, "frequency_penalty": 0.5},
]


def make_logits(rows: int = 3, seed: int = 0) -> Tensor:
    """Rows with equal logits among the largest, and tokens that cannot come."""
    drawn = torch.randn(rows, SIZE, generator=torch.Generator().manual_seed(seed)) * 3
    drawn[:, ::7] = drawn[:, ::7].round()
    drawn[:, 5::11] = -torch.inf
    return drawn


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_narrowed_rows_have_the_scores_of_whole_rows(settings: dict[str, Any]) -> None:
    logits, states = make_logits(), make_states(SIZE, 3, **settings)
    narrowed, whole = process(logits, states), _process_together(logits, states, None)
    assert torch.equal(narrowed == -torch.inf, whole == -torch.inf)
    kept = whole > -torch.inf
    assert kept.any(-1).all()
    torch.testing.assert_close(narrowed[kept], whole[kept], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_token_is_the_same_with_its_entry_and_without(settings: dict[str, Any]) -> None:
    for seed in range(5):
        logits, states = make_logits(20, seed), make_states(SIZE, 20, seed=seed, **settings)
        plain = choose(logits, states)
        recorded = choose(logits, states, [Wanted(entry=True)] * 20)
        assert all(isinstance(one, Chosen) for one in plain)
        assert [one.id for one in plain] == [one.id for one in recorded]  # type: ignore[union-attr]


@pytest.mark.parametrize("k", [1, 2, 50, 64])
@pytest.mark.parametrize("temperature", [1e-3, 0.3, 1.0, 50.0])
def test_candidates_are_all_that_top_k_can_keep(k: int, temperature: float) -> None:
    for seed in range(10):
        logits = make_logits(1, seed)
        scores = (logits.double() - logits.max()) / temperature
        found = find_candidates(logits, k)
        bound = scores.flatten().topk(k).values[-1]
        kept = torch.nonzero(scores[0] >= bound).flatten().tolist()
        assert found is not None and set(kept) <= set(found.tolist())
        assert np.all(np.diff(found) > 0)


def test_of_equal_logits_or_for_a_large_k_there_are_no_few_candidates() -> None:
    assert find_candidates(torch.zeros(1, SIZE), 5) is None
    assert find_candidates(make_logits(1), 65) is None
    states = make_states(SIZE, 1, temperature=1.0, top_k=5)
    assert (process(torch.zeros(1, SIZE), states) == 0).all()


@pytest.mark.parametrize("size", [1, 64, 500, SIZE, SIZE + 1])
def test_the_kth_largest_is_that_of_a_sort(size: int) -> None:
    row = np.random.default_rng(size).normal(size=size).round(1)
    row[::3] = -np.inf
    for k in {1, size // 100 + 1, size // 2 + 1, size}:
        assert find_kth_largest(row, k) == np.sort(row)[size - k]


def test_a_narrowed_row_widens_to_what_it_was() -> None:
    scores = torch.full((1, SIZE), -torch.inf, dtype=torch.float64)
    scores[0, [3, 99, SIZE - 1]] = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    narrow = KeptScores(scores).narrow()
    assert narrow.scores.tolist() == [[1.0, -2.0, 0.5]]
    assert [narrow.get_id(place) for place in range(3)] == [3, 99, SIZE - 1]
    assert torch.equal(narrow.widen(SIZE), scores)
    empty = KeptScores(torch.full((1, SIZE), -torch.inf, dtype=torch.float64))
    assert empty.narrow() is empty

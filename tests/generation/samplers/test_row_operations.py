"""The first tokens of a row in order, however few are sorted; and each operation beside its twin;
and torch's threads."""

import threading
from typing import Any

import numpy as np
import pytest
import torch

from pellucid.generation.samplers.row_operations import ROW_OPERATIONS, rank_all, rank_first, use_one_thread
from pellucid.parts.samplers import Table
from pellucid.reference.ops import find_op

RANDOM = np.random.default_rng(0)
V = 300


def make_row(spread: float, size: int = 30_000) -> tuple[Table, Table]:
    """Rounded scores, with many ties, and their softmax."""
    scores = (RANDOM.normal(size=size) * spread * 16).round() / 16
    exps = np.exp(scores - scores.max())
    return scores, exps / exps.sum()


@pytest.mark.parametrize("spread", [0.0, 0.5, 3.0, 30.0])
@pytest.mark.parametrize("mass", [0.0, 0.3, 0.99, 1.0])
def test_a_ranking_is_the_beginning_of_the_whole_order(spread: float, mass: float) -> None:
    scores, probs = make_row(spread)
    whole = np.argsort(-scores, kind="stable")
    reached = np.cumsum(probs[whole])
    for least in (1, 10):
        ranking = rank_first(scores, probs, mass, least)
        count = len(ranking.ids)
        assert np.array_equal(ranking.ids, whole[:count])
        assert np.array_equal(ranking.reached, reached[:count])
        assert count >= least and (ranking.total > mass or count == len(scores))
        assert ranking.before[0] == 0 and np.array_equal(ranking.before[1:], ranking.reached[:-1])


def test_a_token_that_was_removed_is_in_no_ranking() -> None:
    scores = np.array([1.0, -np.inf, 2.0, -np.inf])
    assert rank_all(scores, np.array([0.3, 0.0, 0.7, 0.0])).ids.tolist() == [2, 0]
    empty = rank_all(np.full(3, -np.inf), np.zeros(3))
    assert len(empty.ids) == len(empty.before) == 0 and empty.total == 0


SCORES = np.where(RANDOM.random((4, V)) < 0.1, -np.inf, RANDOM.normal(size=(4, V)) * 3)
PROBS = find_op("softmax").forward(SCORES)
MARKS = RANDOM.random((4, V)) < 0.5
COLUMN = np.array([[0.2], [0.5], [0.7], [1.4]])
CASES: dict[str, tuple[list[Table], dict[str, Table]]] = {
    "softmax": ([SCORES], {}),
    "temper": ([SCORES], {"temperature": COLUMN}),
    "penalize": ([SCORES, MARKS], {"penalty": COLUMN}),
    "add": ([SCORES, PROBS], {}),
    "scaled_sum": ([SCORES, PROBS], {"alpha": COLUMN}),
    "mask": ([SCORES, MARKS], {}),
    "keep_at_least": ([SCORES, PROBS, COLUMN / 100], {}),
    "keep_below": ([SCORES, PROBS], {"bound": COLUMN / 100}),
    "scaled_max": ([PROBS], {"share": COLUMN}),
    "minimum": ([PROBS], {"limit": COLUMN / 100}),
    "entropy": ([PROBS], {}),
    "typicality": ([PROBS, COLUMN], {}),
    "kth_largest": ([SCORES], {"k": np.array([[1], [7], [300], [1000]])}),
    "mass_before": ([PROBS, SCORES], {"limit": COLUMN / 2}),
}


@pytest.mark.parametrize("name", ROW_OPERATIONS)
def test_an_operation_equals_the_one_of_the_tape_row_by_row(name: str) -> None:
    values, numbers = CASES[name]
    tensors = [torch.from_numpy(value) for value in values]
    got = ROW_OPERATIONS[name](*tensors, **{key: torch.from_numpy(column) for key, column in numbers.items()})
    for row in range(4):
        given: dict[str, Any] = {key: column[row].item() for key, column in numbers.items()}
        wanted = find_op(name).forward(*(value[row : row + 1] for value in values), **given)
        np.testing.assert_allclose(got[row].numpy(), wanted[0], rtol=1e-13, atol=1e-15)


def test_the_order_of_the_probabilities_is_found_without_sorting_them_all() -> None:
    probs = torch.from_numpy(PROBS)
    limit = torch.full((4, 1), 0.8, dtype=torch.float64)
    fast = ROW_OPERATIONS["mass_before"](probs, probs, limit=limit)
    assert torch.equal(fast, ROW_OPERATIONS["mass_before"](probs, probs.clone(), limit=limit))


def test_only_the_calling_thread_has_one_thread_meanwhile() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with use_one_thread():
            assert torch.get_num_threads() == 1
            others: list[int] = []
            thread = threading.Thread(target=lambda: others.append(torch.get_num_threads()))
            thread.start()
            thread.join()
            assert others == [2]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_number_is_restored_after_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ValueError, match="sampler"), use_one_thread():
        raise ValueError("a sampler failed")
    assert torch.get_num_threads() == before

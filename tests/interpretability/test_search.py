"""The exact search equals a loop, its cost is counted, and attention is a weighted average."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.interpretability import search
from pellucid.interpretability.runner import EngineRunner, PromptedModel, SpecificationRunner
from pellucid.interpretability.search import (
    SearchCost,
    compare_heads_with_search,
    find_largest,
    measure_search,
    search_inner_products,
    view_search,
)
from tests.agreement.engines import CHOICES, fast
from tests.interpretability.same_data import check_same
from tests.reference.models import weights

RANDOM = np.random.default_rng(0)
VECTORS, QUERY = RANDOM.normal(size=(50, 7)), RANDOM.normal(size=7)


def test_the_search_equals_a_loop_over_all_rows() -> None:
    products = [sum(a * b for a, b in zip(row, QUERY, strict=True)) for row in VECTORS]
    expected = sorted(range(50), key=lambda i: -products[i])
    best, found = search_inner_products(VECTORS, QUERY, 5)
    assert best.tolist() == expected[:5]
    assert found.tolist() == pytest.approx([products[i] for i in expected[:5]])


@given(st.lists(st.integers(-3, 3), min_size=1).map(lambda x: np.array(x, np.float64)), st.integers(0, 9))
def test_the_largest_come_in_order_and_the_lower_place_first(scores: np.ndarray, count: int) -> None:
    expected = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:count]
    assert find_largest(scores, count).tolist() == expected


def test_what_is_not_a_number_comes_last() -> None:
    assert find_largest(np.array([np.nan, 1.0, -np.inf, 2.0]), 2).tolist() == [3, 1]
    assert len(find_largest(np.full(4, np.nan), 3)) == 3


def test_by_cosine_alone_another_row_is_the_nearest() -> None:
    vectors, query = np.array([[1.0, 0.0], [3.0, 3.0]]), np.array([1.0, 0.0])
    assert search_inner_products(vectors, query)[0] == 1
    assert (vectors @ query / np.linalg.norm(vectors, axis=1)).argmax() == 0


def test_the_cost_counts_each_number_of_the_matrix_once() -> None:
    cost = measure_search(VECTORS.astype(np.float32), QUERY)
    assert (cost.multiply_adds, cost.bytes_read) == (350, 1400)
    assert cost.seconds > 0 < cost.bound_seconds


def test_calls_take_turns_so_that_a_busy_machine_slows_them_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which everything takes a thousand times as long until half of the runs are done."""
    now, calls = [0.0], [0]

    def run() -> None:
        calls[0] += 1
        now[0] += 1000.0 if calls[0] <= search.REPEATS else 1.0

    monkeypatch.setattr(search.time, "perf_counter", lambda: now[0])
    assert search.time_in_turn(run, run) == [1.0, 1.0]


@pytest.mark.parametrize(("bound", "noted"), [(2.0, True), (0.5, False)])
def test_a_share_above_one_is_said_to_be_an_error(
    monkeypatch: pytest.MonkeyPatch, bound: float, noted: bool
) -> None:
    cost = SearchCost(7, 8, 56, 448, 1.0, bound)
    monkeypatch.setattr(search, "measure_search", lambda *arrays: cost)
    config = CHOICES["norm/rms_norm"]
    view = view_search(PromptedModel("small", SpecificationRunner(config, weights(config)), (1, 2)))
    assert any("measurement error" in note for note in view.notes) == noted


def test_a_head_returns_the_average_and_not_the_value_of_the_best_key() -> None:
    """Two keys with the scores ln 3 and 0 have the weights 3/4 and 1/4."""
    pattern = np.array([[[[0.75, 0.25]], [[1.0, 0.0]]]])
    v = np.array([[[[4.0, 0.0], [0.0, 4.0]]]])
    values = {"blocks.2.attn.pattern": pattern, "blocks.2.attn.v": v, "blocks.2.attn.z": pattern @ v}
    soft, hard = compare_heads_with_search(values)
    assert (soft.layer, soft.head, soft.best_key, soft.best_weight) == (2, 0, 0, 0.75)
    assert soft.distance == pytest.approx(math.sqrt(2) / math.sqrt(10))
    assert (hard.best_weight, hard.distance) == (1.0, 0.0)


@pytest.mark.parametrize(
    "name", ["norm/rms_norm", "attention/linear_elu", "attention/tiled", "placement/post"]
)
def test_the_view_finds_the_largest_logit_on_both_engines(name: str) -> None:
    config = CHOICES[name]
    ids = (1, 3, 1, 5, 0)
    views = []
    for runner in (SpecificationRunner(config, weights(config)), EngineRunner(fast(config))):
        view = view_search(PromptedModel("small", runner, ids), count=3)
        logits = runner.run(ids, ["logits"])["logits"][0, -1]
        assert [row["id"] for row in view.data["next_token"]] == find_largest(logits, 3).tolist()
        views.append({key: view.data[key] for key in ("next_token", "heads")})
    check_same(*views)


def test_a_bias_of_the_unembedding_is_one_more_coordinate() -> None:
    config = replace(CHOICES["norm/rms_norm"], biases=("unembed",))
    runner = SpecificationRunner(config, weights(config))
    view = view_search(PromptedModel("small", runner, (1, 2)), count=7)
    logits = runner.run((1, 2), ["logits"])["logits"][0, -1]
    assert [row["inner_product"] for row in view.data["next_token"]] == pytest.approx(sorted(logits)[::-1])

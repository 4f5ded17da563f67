"""The most and the least expected passages: the most extreme of all runs, and none overlaps another."""

from itertools import pairwise

import numpy as np
import pytest

from pellucid.evaluation.passages import BEFORE, find_extremes, find_passages
from pellucid.evaluation.scoring import DocumentScores


def make_scores(name: str, nll: list[float]) -> DocumentScores:
    ids = np.arange(len(nll))
    return DocumentScores(name, "", None, None, ids, np.array(nll, float), ids.astype(np.int32), ids)


def test_the_run_with_the_largest_mean_is_found_by_hand() -> None:
    found = find_passages([make_scores("a", [1, 1, 9, 9, 1, 1, 0, 0])], most=1, length=2)
    assert (found.unexpected[0].first, found.unexpected[0].mean) == (2, 9)
    assert (found.expected[0].first, found.expected[0].mean) == (6, 0)
    assert found.unexpected[0].ids == (2, 3) and found.unexpected[0].before == (0, 1)


def test_runs_are_those_of_an_exhaustive_search_and_do_not_overlap() -> None:
    draw = np.random.default_rng(0)
    for size in (1, 5, 30, 200):
        values = draw.exponential(size=size)
        length = min(4, size)
        found = list(find_extremes(values, length, 6))
        means = [values[i : i + length].mean() for i in range(size - length + 1)]
        assert found[0][1] == pytest.approx(max(means))
        starts = sorted(first for first, _ in found)
        assert all(b - a >= length for a, b in pairwise(starts))


def test_passages_of_many_documents_are_the_most_extreme_ones() -> None:
    documents = [make_scores(f"d{i}", [float(i)] * 6) for i in range(20)]
    found = find_passages(documents, most=3, length=3)
    assert [one.mean for one in found.unexpected] == [19, 19, 18]
    assert [one.mean for one in found.expected] == [0, 0, 1]
    assert [one.document for one in found.expected] == ["d0", "d0", "d1"]
    assert [(one.document, one.first) for one in find_passages(documents[:1], 3, 3).expected] == [
        ("d0", 0),
        ("d0", 3),
    ]


def test_a_short_document_is_a_passage_and_an_empty_one_is_none() -> None:
    found = find_passages([make_scores("short", [2.0]), make_scores("empty", [])], most=2)
    assert [one.document for one in found.expected] == ["short"]
    assert found.unexpected[0].nll == (2.0,)


def test_context_before_a_passage_is_bounded() -> None:
    found = find_passages([make_scores("a", [0.0] * 100 + [5.0])], most=1, length=1)
    assert found.unexpected[0].before == tuple(range(100 - BEFORE, 100))

"""The most and the least expected passages."""

import numpy as np

from pellucid.evaluation.documents import EncodedDocument
from pellucid.evaluation.passages import BEFORE, LONGEST, SHORT, ExtremePassages
from pellucid.evaluation.scoring import DocumentScores


def make_scores(name: str, nll: list[float], counted: list[bool] | None = None) -> DocumentScores:
    is_counted = np.array([True] * len(nll) if counted is None else counted, bool)
    first = 1000 * "abcde".index(name)  # each document has its own tokens
    document = EncodedDocument(name, first + np.arange(len(is_counted) + 1), is_counted, None)
    n = len(nll)
    targets = document.ids[1:][is_counted]
    return DocumentScores(
        name, "", None, None, targets, np.array(nll), np.arange(n, dtype=np.int32), np.arange(n), document
    )


def choose(*scores: DocumentScores, count: int = 2) -> ExtremePassages:
    passages = ExtremePassages(str, count)
    for one in scores:
        passages.add(one)
    return passages


def test_the_largest_and_the_smallest_losses_come_first() -> None:
    found = choose(
        *(make_scores(name, [loss] * 3) for name, loss in zip("abcde", (3, 1, 5, 2, 4), strict=True))
    )
    assert [one.document for one in found.least_expected] == ["c", "e"]
    assert [one.document for one in found.most_expected] == ["b", "d"]
    assert found.least_expected[0].loss == 5


def test_a_long_document_is_divided_into_passages_of_nearly_equal_length() -> None:
    n = 2 * LONGEST + 1
    found = choose(make_scores("a", [0.0] * n), count=9)
    sizes = [len(one.nll) for one in found.most_expected]
    assert sum(sizes) == n and len(sizes) == 3 and max(sizes) - min(sizes) <= 1
    assert [one.first for one in found.most_expected] == [0, 32, 65]


def test_a_passage_has_its_tokens_ranks_and_what_is_before_it() -> None:
    (passage,) = choose(make_scores("a", [1.0, 2.0], [False] * 40 + [True, True])).least_expected
    assert passage.tokens == ("41", "42") and passage.nll == (1.0, 2.0) and passage.rank == (0, 1)
    assert passage.before == tuple(str(id) for id in range(41 - BEFORE, 41))


def test_of_equal_passages_the_first_is_kept() -> None:
    found = choose(*(make_scores(name, [1.0]) for name in "abc"), count=1)
    assert [one.document for one in (*found.least_expected, *found.most_expected)] == ["a", "a"]


def test_of_passages_with_the_same_text_the_more_extreme_one_is_kept() -> None:
    found = choose(*(make_scores("a", [loss] * 3) for loss in (2.0, 5.0, 3.0)), make_scores("b", [4.0] * 3))
    assert [one.loss for one in found.least_expected] == [5, 4]
    assert [one.loss for one in found.most_expected] == [2, 4]


def test_a_heading_is_kept_only_where_there_are_not_enough_longer_passages() -> None:
    documents = [make_scores("a", [9.0] * (SHORT - 1)), make_scores("b", [1.0] * SHORT)]
    assert [one.document for one in choose(*documents, count=1).least_expected] == ["b"]
    assert [one.document for one in choose(*documents, count=2).least_expected] == ["b", "a"]

"""Windows: every target is scored once, with the context that the stride promises."""

import itertools

import numpy as np
import pytest

from pellucid.base.errors import UsageError
from pellucid.evaluation.documents import EncodedDocument
from pellucid.evaluation.windows import (
    MAX_WINDOW,
    cut_windows,
    make_batches,
    make_rows,
    pad_rows,
    resolve_window,
)


def make_document(n: int, counted: list[int] | None = None) -> EncodedDocument:
    is_counted = np.ones(max(0, n - 1), bool)
    if counted is not None:
        is_counted[:] = False
        is_counted[counted] = True
    return EncodedDocument(f"d{n}", np.arange(n), is_counted, n)


def test_every_target_is_scored_once_with_at_least_the_promised_context() -> None:
    sizes = [
        (n, window, stride) for n in range(12) for window in range(1, 7) for stride in range(1, window + 1)
    ]
    for n, window, stride in sizes:
        windows = list(cut_windows(n, window, stride))
        assert [target for one in windows for target in range(one.first, one.stop)] == list(range(1, n))
        for one in windows:
            assert 1 <= one.stop - 1 - one.start <= window
            for target in range(one.first, one.stop):
                assert target - one.start > (0 if one.start == 0 else window - stride)


def test_a_window_and_a_stride_by_hand() -> None:
    assert [tuple(one) for one in cut_windows(10, 4, 3)] == [(0, 1, 5), (3, 5, 8), (6, 8, 10)]


def test_the_default_is_the_context_length_up_to_a_bound() -> None:
    assert resolve_window(100) == (100, 100)
    assert resolve_window(10 * MAX_WINDOW) == (MAX_WINDOW, MAX_WINDOW)
    assert resolve_window(1) == (1, 1)


@pytest.mark.parametrize(("window", "stride"), [(0, None), (101, None), (-1, None), (10, 0), (10, 11)])
def test_a_window_beyond_the_context_or_a_stride_beyond_the_window_is_refused(
    window: int, stride: int | None
) -> None:
    with pytest.raises(UsageError):
        resolve_window(100, window, stride)


def test_rows_without_a_counted_target_are_omitted_and_others_end_with_their_last() -> None:
    rows = list(make_rows([make_document(1), make_document(20, [9, 10])], window=4, stride=4))
    assert [tuple(row.window) for row in rows] == [(8, 9, 12)]
    assert rows[0].number == 1
    assert rows[0].counted.tolist() == [9, 10] and rows[0].context.tolist() == [2, 3]
    assert rows[0].inputs.tolist() == [8, 9, 10]


def test_batches_hold_each_row_once_within_the_bound_and_depend_on_the_documents_alone() -> None:
    documents = [make_document(int(n)) for n in np.random.default_rng(0).integers(0, 60, 200)]
    rows = list(make_rows(documents, 16, 8))
    batches = list(make_batches(rows, 50))
    keys = [(row.number, row.window.start) for batch in batches for row in batch]
    assert sorted(keys) == sorted((row.number, row.window.start) for row in rows)
    assert all(pad_rows(batch).size <= 50 for batch in batches)
    inputs = sum(len(row.inputs) for row in rows)
    assert sum(pad_rows(batch).size for batch in batches) < 1.1 * inputs
    again = list(make_batches(make_rows(iter(documents), 16, 8), 50))
    assert [[row.window for row in batch] for batch in again] == [
        [row.window for row in batch] for batch in batches
    ]


def test_a_row_longer_than_a_batch_is_a_batch_alone() -> None:
    rows = list(make_rows([make_document(9), make_document(9)], 8, 8))
    assert [len(batch) for batch in make_batches(rows, 3)] == [1, 1]
    assert list(itertools.chain(*make_batches([], 3))) == []


def test_rows_are_padded_on_the_right() -> None:
    rows = list(make_rows([make_document(3), make_document(5)], 8, 8))
    assert pad_rows(rows).tolist() == [[0, 1, 0, 0], [0, 1, 2, 3]]

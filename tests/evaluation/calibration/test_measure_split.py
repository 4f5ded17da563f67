"""The split: whole documents, the same for every tokenizer, and blocks of a single document."""

import numpy as np
import pytest

from pellucid.evaluation.calibration.measure import BLOCKS, split_predictions


@pytest.mark.parametrize("count", [2, 3, 10, 31])
@pytest.mark.parametrize("share", [0.001, 0.5, 0.999])
def test_no_document_is_in_both_parts_and_neither_is_empty(count: int, share: float) -> None:
    documents = np.repeat(np.arange(count), np.arange(1, count + 1))
    split = split_predictions(documents, share, seed=0)
    assert split.is_fit.any() and split.is_test.any() and not split.is_by_block
    assert not set(documents[split.is_fit]) & set(documents[split.is_test])


def test_the_documents_are_the_same_however_many_targets_they_have() -> None:
    """So that two tokenizers are fitted on the same text."""
    few, many = np.repeat(np.arange(9), 3), np.repeat(np.arange(9), np.arange(9) * 5 + 1)
    for seed in range(5):
        parts = [set(each[split_predictions(each, 0.5, seed).is_fit]) for each in (few, many)]
        assert parts[0] == parts[1]
    assert len({str(split_predictions(few, 0.5, seed).is_fit) for seed in range(5)}) > 1


def test_a_single_document_is_split_into_blocks_of_consecutive_targets() -> None:
    split = split_predictions(np.full(1000, 7), 0.5, seed=0)
    assert split.is_by_block and split.is_fit.sum() == 500
    assert len(np.unique(split.units)) == BLOCKS and (np.diff(split.units) >= 0).all()


def test_one_target_is_measured_and_nothing_is_fitted() -> None:
    split = split_predictions(np.zeros(1, np.int64), 0.5, seed=0)
    assert split.is_test.all() and not split.is_fit.any()
    assert split_predictions(np.zeros(0, np.int64), 0.5, seed=0).is_fit.shape == (0,)


def test_a_share_of_0_fits_nothing() -> None:
    assert not split_predictions(np.arange(10), 0.0, seed=0).is_fit.any()

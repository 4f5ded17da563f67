"""Held states: their logits are the model's own, in the order of the documents, and as many as asked for."""

import numpy as np
import pytest
import torch

from pellucid.evaluation.calibration.predictions import TemperatureScaling, compute_predictions
from pellucid.evaluation.calibration.states import hold_states
from pellucid.evaluation.documents import EncodedDocument
from pellucid.evaluation.scoring import score_documents
from tests.evaluation.small_models import make_model


def make_documents(sizes: list[int]) -> list[EncodedDocument]:
    """Documents of random ids, of whose targets about three quarters count."""
    rng = np.random.default_rng(0)
    return [
        EncodedDocument(
            f"text#{i}", rng.integers(0, 300, size), rng.uniform(size=max(size - 1, 0)) < 0.75, size
        )
        for i, size in enumerate(sizes)
    ]


def test_the_predictions_are_those_that_evaluate_scores() -> None:
    """Long documents have several windows, and batches are sorted by length; the order is the documents'."""
    model, documents = make_model(), make_documents([40, 3, 12, 90, 1, 25])
    settings = {"window": 16, "stride": 8}
    states = hold_states(model.module, documents, **settings, most=10_000)
    (found,) = compute_predictions(states, [TemperatureScaling(1.0)])
    scored = [scores for scores in score_documents(model.module, documents, **settings) if len(scores.nll)]
    assert found.nll == pytest.approx(np.concatenate([scores.nll for scores in scored]), abs=1e-6)
    assert found.rank.tolist() == np.concatenate([scores.rank for scores in scored]).tolist()
    for i, document in enumerate(documents):
        places = states.positions[states.documents == i]
        assert places.tolist() == (np.flatnonzero(document.is_counted) + 1).tolist()
        assert states.targets[states.documents == i].tolist() == document.ids[places].tolist()


@pytest.mark.parametrize("most", [1, 7, 30, 31, 500])
def test_no_more_targets_are_held_than_asked_for(most: int) -> None:
    model, documents = make_model(), make_documents([20, 20, 20])
    states = hold_states(model.module, documents, window=16, stride=16, most=most)
    assert len(states) == min(most, sum(int(document.is_counted.sum()) for document in documents))


def test_without_a_target_there_is_nothing() -> None:
    model, documents = make_model(), make_documents([1, 0])
    states = hold_states(model.module, documents, window=16, stride=16, most=5)
    assert len(states) == 0 and states.logits().shape == (0, states.vocab_size)


def test_a_selection_has_its_own_logits() -> None:
    model, documents = make_model(), make_documents([20])
    states = hold_states(model.module, documents, window=16, stride=16, most=50)
    rows = states.positions % 2 == 0
    torch.testing.assert_close(
        torch.tensor(states.select(rows).logits()), torch.tensor(states.logits()[rows]), rtol=1e-6, atol=1e-6
    )

"""Held states: their logits are the model's own, in the order of the documents, and as many as asked for."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pellucid.evaluation.calibration import states as states_module
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


@pytest.mark.parametrize(("chunk", "part", "most_kept"), [(1, 1, 0), (900, 300, 1200), (5000, 700, 10**6)])
def test_logits_are_the_same_in_any_parts_kept_or_not(
    monkeypatch: pytest.MonkeyPatch, chunk: int, part: int, most_kept: int
) -> None:
    model, documents = make_model(), make_documents([20, 9])
    found = hold_states(model.module, documents, window=16, stride=16, most=50)
    whole, seen = found.logits(), list[int]()
    monkeypatch.setattr(states_module, "CHUNK", chunk)
    monkeypatch.setattr(states_module, "PART", {"cpu": part})
    monkeypatch.setattr(states_module, "MOST_KEPT", most_kept)
    kept = replace(found, on_rows=seen.append).keep()
    assert (0 if kept.kept is None else len(kept.kept)) == sum(seen) == min(len(found), most_kept // 300)
    assert np.array_equal(kept.logits(), whole)
    rows = [row for some, _, _ in kept.chunks() for row in range(some.start, some.stop)]
    assert rows == list(range(len(found)))
    assert all(len(logits) <= max(part // 300, 1) for _, logits, _ in kept.chunks())

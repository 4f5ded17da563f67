"""A calibration: fitted on one part, measured on the other, on models whose answer is known."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pellucid.base.errors import UsageError
from pellucid.evaluation.calibration.measure import (
    BLOCKS,
    FITTED,
    VECTOR,
    Calibration,
    measure_calibration,
    split_predictions,
)
from pellucid.explanation import derive
from tests.evaluation.calibration.small_predictions import make_states, random_states, ten_states


def make_overconfident(true_temperature: float, count: int = 6000, seed: int = 0) -> Calibration:
    """The targets are drawn at this temperature from logits that the model uses as they are."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(count, 8)) * 2
    noise = -np.log(-np.log(rng.uniform(size=logits.shape)))
    targets = (logits / true_temperature + noise).argmax(-1)  # Gumbel: a draw from softmax(z / T)
    return measure_calibration("model", make_states(logits, targets, per_document=20), has_vector=True)


@pytest.mark.parametrize("true_temperature", [0.7, 1.0, 1.6])
def test_the_temperature_that_drew_the_targets_is_found(true_temperature: float) -> None:
    calibration = make_overconfident(true_temperature)
    assert calibration.fitted_temperature == pytest.approx(true_temperature, rel=0.06)
    before, after = calibration.before, calibration.after
    assert after is not None and after.ece.value < 0.03
    assert after.nll.value < before.nll.value + 1e-4
    if true_temperature != 1:
        assert after.ece.value < before.ece.value / 3


def test_an_overconfident_model_has_negative_gaps() -> None:
    calibration = make_overconfident(1.6)
    bins = calibration.before.bins
    assert bins.gap[bins.counts > 50].max() < 0
    assert calibration.before.confidence > calibration.before.accuracy


def test_fitted_and_measured_parts_have_no_document_in_common() -> None:
    calibration = measure_calibration("ten", ten_states())
    split = calibration.split
    assert not set(split.units[split.is_fit]) & set(split.units[split.is_test])
    assert calibration.before.count == split.is_test.sum()
    assert calibration.temperature_fit is not None
    assert len(calibration.temperature_fit.steps[0].lse) == split.is_fit.sum()


def test_each_temperature_that_is_asked_for_is_measured() -> None:
    states = random_states(0)
    calibration = measure_calibration("m", states, temperatures=[0.5, 2.0], has_vector=True)
    assert [each.name for each in calibration.settings] == [
        "before",
        "T = 0.5",
        "T = 2",
        FITTED,
        VECTOR,
    ]
    assert [each.temperature for each in calibration.settings[:3]] == [1.0, 0.5, 2.0]
    curve = calibration.curve
    assert curve is not None
    for each in calibration.settings[:4]:
        at = np.flatnonzero(curve.temperatures == each.temperature)[0]
        assert curve.test_nll[at] == pytest.approx(each.scores.nll.value)
    assert curve.fit_nll.argmin() == np.flatnonzero(curve.temperatures == calibration.fitted_temperature)[0]


def test_one_target_is_measured_without_a_fit() -> None:
    calibration = measure_calibration("one", make_states(np.log([[0.25, 0.75]]), np.array([1])))
    assert calibration.temperature_fit is None and calibration.after is None
    assert calibration.before.nll.value == pytest.approx(-np.log(0.75))
    assert calibration.before.ece.value == pytest.approx(0.25)
    assert "bins.gap" in calibration.trace.tape and "temperature" not in calibration.trace.tape


def test_two_targets_are_one_in_each_part() -> None:
    calibration = measure_calibration("two", make_states(np.log([[0.25, 0.75]] * 2), np.array([1, 0])))
    assert calibration.before.count == 1 and calibration.fitted_temperature is not None


def test_no_target_is_refused() -> None:
    with pytest.raises(UsageError, match="no counted target"):
        measure_calibration("none", make_states(np.empty((0, 3)), np.empty(0)))


def test_the_mistakes_are_the_most_confident_wrong_predictions() -> None:
    calibration = measure_calibration("ten", ten_states(), lambda id: "abc"[id], fit_share=0.0)
    assert [round(each.confidence, 6) for each in calibration.mistakes] == [0.9, 0.7, 0.5, 0.5]
    assert (calibration.mistakes[0].place, calibration.mistakes[0].predicted) == ("b (text#0, 2)", "a")


def test_the_trace_has_the_scores_and_says_which_token_of_which_document() -> None:
    calibration = measure_calibration("ten", ten_states(), lambda id: "abc"[id])
    trace = calibration.trace
    assert trace.tape["ece"] == pytest.approx(calibration.before.ece.value)
    assert trace.tape["scaled.ece"] == pytest.approx(calibration.after.ece.value)  # type: ignore[union-attr]
    assert trace.tape["temperature"] == pytest.approx(calibration.fitted_temperature)
    assert "(text#" in str(derive.explain(trace, "ece", depth=6, most=None))


def test_progress_counts_each_pass_to_its_end() -> None:
    seen = list[tuple[str, int, int]]()
    measure_calibration("m", random_states(0), progress=lambda *each: seen.append(each))
    assert {what for what, _, _ in seen} == {
        "computing logits", "fitting the temperature", "measuring temperatures", "measuring"
    }  # fmt: skip
    assert all(0 < done <= total for _, done, total in seen)


def test_the_curve_is_measured_only_where_it_is_asked_for() -> None:
    seen = set[str]()
    found = measure_calibration(
        "m", random_states(0), has_curve=False, progress=lambda what, *more: seen.add(what)
    )
    assert found.curve is None and found.after is not None and "measuring temperatures" not in seen


def test_a_fit_computes_the_logits_of_its_part_once() -> None:
    states, computed = random_states(0), list[int]()

    def unembed(hidden: torch.Tensor) -> torch.Tensor:
        computed.append(len(hidden))
        return hidden

    found = measure_calibration("m", replace(states, unembed=unembed), has_curve=False)
    assert found.temperature_fit is not None and len(found.temperature_fit.steps) > 2
    n_fit, n_test = int(found.split.is_fit.sum()), int(found.split.is_test.sum())
    records = n_fit + n_test  # those of the trace of a small vocabulary
    assert sum(computed) == n_fit + n_test + records


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

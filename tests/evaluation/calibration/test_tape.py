"""A calibration on the tape: the numbers of the fast arithmetic, each explained down to a prediction."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid import ops
from pellucid.evaluation.calibration.predictions import Predictions, TemperatureScaling, compute_predictions
from pellucid.evaluation.calibration.scores import CalibrationScores, compute_scores
from pellucid.evaluation.calibration.states import HeldStates
from pellucid.evaluation.calibration.tape import PartRecord, make_trace
from pellucid.evaluation.calibration.temperature import TemperatureFit, fit_temperature
from pellucid.explanation import derive, trace_file
from pellucid.explanation.trace import Trace
from pellucid.reference.tape import Tape
from tests.evaluation.calibration.small_predictions import random_states, ten_states
from tests.reference.models import check_explained

Both = tuple[Predictions, CalibrationScores]


def measure(states: HeldStates, bins: int) -> tuple[TemperatureFit, Both, Both]:
    fit = fit_temperature(states)
    found = compute_predictions(states, [TemperatureScaling(1.0), TemperatureScaling(fit.temperature)])
    before, after = ((each, compute_scores(each, states.documents, bins)) for each in found)
    return fit, before, after


def build(states: HeldStates, bins: int = 5, has_logits: bool = True) -> Trace:
    """A trace whose fitting part is its test part."""
    fit, before, after = measure(states, bins)
    labels = [f"·{target} (text#{i})" for i, target in enumerate(states.targets)]
    part = PartRecord(states.targets, labels, states.logits() if has_logits else None)
    vocabulary: Sequence[str] = [f"token{v}" for v in range(states.vocab_size)] if has_logits else ()
    return make_trace("small", part, before, after, (part, fit), vocabulary)


def test_ten_predictions_by_hand_are_on_the_tape() -> None:
    tape = build(ten_states()).tape
    assert tape["ece"] == pytest.approx(0.1)
    assert tape["bins.mce"] == pytest.approx([0.4])
    assert tape["brier"] == pytest.approx(0.6145)
    assert tape["bins.count"].tolist() == [0, 0, 4, 4, 2]
    assert tape["bins.gap"] == pytest.approx([0, 0, 0, 0.05, -0.4])
    assert tape["mass_bins.count"].sum() == 10


@pytest.mark.parametrize("has_logits", [True, False])
def test_the_tape_has_the_numbers_of_the_fast_arithmetic(has_logits: bool) -> None:
    states = random_states(2, count=30, vocabulary=12)
    tape, (fit, before, after) = build(states, 10, has_logits).tape, measure(states, 10)
    for prefix, (_, scores) in (("", before), ("scaled.", after)):
        assert tape[f"{prefix}ece"] == pytest.approx(scores.ece.value, abs=1e-14)
        assert tape[f"{prefix}mass_bins.ece"] == pytest.approx(scores.mass_bins.ece, abs=1e-14)
        assert tape[f"{prefix}bins.mce"] == pytest.approx([scores.bins.mce], abs=1e-14)
        assert tape[f"{prefix}brier"] == pytest.approx(scores.brier.value, abs=1e-14)
        assert tape[f"{prefix}nll"] == pytest.approx(scores.nll.value, abs=1e-14)
        assert tape[f"{prefix}bins.gap"] == pytest.approx(scores.bins.gap, abs=1e-14)
        for k in (5, 10):
            assert tape[f"{prefix}top{k}_bins.ece"] == pytest.approx(scores.top_bins[k].ece, abs=1e-14)
    assert tape["temperature"] == pytest.approx(fit.temperature, rel=1e-12)
    for k, step in enumerate(fit.steps):
        assert tape[f"inverse_temperature@{k}"] == pytest.approx(step.inverse_temperature, rel=1e-12)
        assert tape[f"fit.nll@{k}"] == pytest.approx(step.nll, rel=1e-12)
        assert tape[f"d.inverse_temperature@{k}"] == pytest.approx(step.gradient, rel=1e-9, abs=1e-12)
        assert tape[f"curvature@{k}"] == pytest.approx(step.curvature, rel=1e-12)
        assert tape[f"d.temperature@{k}"] == pytest.approx(step.temperature_gradient, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("has_logits", [True, False])
def test_every_cell_replays_and_is_explained_by_itself(has_logits: bool) -> None:
    check_explained(build(random_states(3, count=8, vocabulary=6), 3, has_logits).tape)


def test_the_derivative_is_that_of_the_tapes_own_backward_pass() -> None:
    states = random_states(6)
    gradient = build(states).tape["d.inverse_temperature"]
    tape = Tape()
    logits, beta = tape.constant("logits", states.logits()), tape.parameter("beta", 1.0)
    scaled = tape("scaled", ops.einsum, logits, beta, spec="nv,->nv")
    lse, targets = tape("lse", ops.logsumexp, scaled), tape.constant("targets", states.targets)
    nll = tape("nll", ops.cross_entropy, scaled, lse, targets)
    tape.backward(tape("loss", ops.einsum, nll, spec="n->", scale=1 / len(states)))
    assert gradient == pytest.approx(float(tape["d.beta"]), rel=1e-12)


def test_a_gap_is_explained_down_to_a_token_and_its_document() -> None:
    found = derive.explain(build(ten_states()), "bins.gap[3]", depth=4, most=None)
    text = str(found)
    assert "gap[m] = acc_B[m] - conf_B[m]" in text
    assert "0.75 - 0.7" in text and "0.6–0.8" in text
    assert "·0 (text#2)" in text and "v=0 token0" in text


@pytest.mark.parametrize("has_logits", [True, False])
def test_a_trace_file_gives_the_same_explanations(tmp_path: Path, has_logits: bool) -> None:
    trace = build(ten_states(), has_logits=has_logits)
    trace_file.write(trace, tmp_path / "cal.json")
    again = trace_file.read(tmp_path / "cal.json")
    for at in ("ece", "bins.gap[3]", "d.inverse_temperature", "temperature", "scaled.mass_bins.accuracy"):
        assert str(derive.explain(again, at)) == str(derive.explain(trace, at))


def test_labels_of_many_predictions_are_in_the_file(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(trace_file, "INLINE", 6)
    trace = build(ten_states(), has_logits=False)
    trace_file.write(trace, tmp_path / "cal.json")
    again = trace_file.read(tmp_path / "cal.json")
    assert again.labels["n"] == trace.labels["n"] and again.labels["i"] == trace.labels["i"]
    np.testing.assert_array_equal(again.tape["bins.gap"], trace.tape["bins.gap"])

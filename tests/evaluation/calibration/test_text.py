"""A calibration in characters: every setting is a row, and what was fitted on what is said."""

import numpy as np

from pellucid.evaluation.calibration.measure import measure_calibration
from pellucid.evaluation.calibration.text import format_calibrations
from tests.evaluation.calibration.small_predictions import make_states, random_states, ten_states


def test_each_setting_is_a_row_and_each_newton_step_another() -> None:
    calibration = measure_calibration("m", random_states(0), temperatures=[0.5], has_vector=True)
    lines = list(format_calibrations([calibration], 120))
    for name in ("before", "T = 0.5", "fitted T", "vector"):
        assert sum(line.startswith(f"{name} ") for line in lines) >= 1
    assert calibration.temperature_fit is not None
    steps = [line for line in lines if line[:1].isdigit() and len(line.split()) == 6]
    assert len(steps) == len(calibration.temperature_fit.steps)
    assert f"{calibration.before.nll.value:.4f}" in lines[1]


def test_several_models_are_one_table() -> None:
    found = [measure_calibration(name, random_states(i)) for i, name in enumerate(("a" * 50, "b"))]
    lines = list(format_calibrations(found, 80))
    assert [lines[1], lines[4]] == ["a" * 50, "b"]
    assert [line.split()[-1] for line in (lines[0], lines[2])] == [
        "conf",
        f"{found[0].before.confidence:.4f}",
    ]
    assert sum(line.startswith("  before") for line in lines) == 2


def test_no_line_is_wider_than_asked_for() -> None:
    calibration = measure_calibration("m" * 30, random_states(0, vocabulary=12), has_vector=True)
    for width in (60, 80, 120):
        assert max(map(len, format_calibrations([calibration], width))) <= width


def test_one_target_one_document_and_a_limit_are_said() -> None:
    one = measure_calibration("one", make_states(np.zeros((1, 3)), np.zeros(1)))
    assert "Nothing is fitted" in "\n".join(format_calibrations([one]))
    states = make_states(np.array([[2.0, 0, 0]] * 40), np.zeros(40), per_document=40)
    text = " ".join(format_calibrations([measure_calibration("right", states)]))
    assert "one document" in text and "nearly every prediction" in text


def test_ten_predictions_by_hand_are_in_the_diagram() -> None:
    calibration = measure_calibration("ten", ten_states(), bins=5, fit_share=0)
    text = "\n".join(format_calibrations([calibration]))
    assert "0.6–0.8  0.750 +0.050" in text and "0.8–1  0.500 −0.400" in text

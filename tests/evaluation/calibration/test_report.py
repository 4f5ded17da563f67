"""A calibration as it is shown: every setting is a row, what was fitted on what is said, bars are bins."""

import json

import numpy as np
import pytest

from pellucid.evaluation.calibration.calibrate import CalibrationReport
from pellucid.evaluation.calibration.measure import measure_calibration
from pellucid.evaluation.calibration.report import (
    draw_calibrations,
    draw_curve,
    draw_reliability,
    report_calibrations,
)
from pellucid.report.svg import write_svg
from tests.evaluation.calibration.small_predictions import make_states, random_states, ten_states
from tests.report.svg_text import find_faults


def test_each_setting_is_a_row_and_each_newton_step_another() -> None:
    calibration = measure_calibration("m", random_states(0), temperatures=[0.5], has_vector=True)
    lines = report_calibrations([calibration]).to_text(120).splitlines()
    for name in ("before", "T = 0.5", "fitted T", "vector"):
        assert sum(line.startswith(f"{name} ") for line in lines) >= 1
    assert calibration.temperature_fit is not None
    steps = [line for line in lines if line[:1].isdigit() and len(line.split()) == 6]
    assert len(steps) == len(calibration.temperature_fit.steps)
    assert f"{calibration.before.nll.value:.4f}" in lines[1]


def test_several_models_are_one_table() -> None:
    found = [measure_calibration(name, random_states(i)) for i, name in enumerate(("a" * 50, "b"))]
    lines = report_calibrations(found).to_text().splitlines()
    assert [lines[1], lines[4]] == ["a" * 50, "b"]
    assert [line.split()[-1] for line in (lines[0], lines[2])] == [
        "conf",
        f"{found[0].before.confidence:.4f}",
    ]
    assert sum(line.startswith("  before") for line in lines) == 2


def test_no_line_is_wider_than_asked_for() -> None:
    calibration = measure_calibration("m" * 30, random_states(0, vocabulary=12), has_vector=True)
    for width in (60, 80, 120):
        assert max(map(len, report_calibrations([calibration]).to_text(width).splitlines())) <= width


def test_one_target_one_document_and_a_limit_are_said() -> None:
    one = measure_calibration("one", make_states(np.zeros((1, 3)), np.zeros(1)))
    assert "Nothing is fitted" in str(report_calibrations([one]))
    states = make_states(np.array([[2.0, 0, 0]] * 40), np.zeros(40), per_document=40)
    text = str(report_calibrations([measure_calibration("right", states)])).replace("\n", " ")
    assert "one document" in text and "nearly every prediction" in text


def test_ten_predictions_by_hand_are_in_the_diagram() -> None:
    calibration = measure_calibration("ten", ten_states(), bins=5, fit_share=0)
    text = str(report_calibrations([calibration]))
    assert "0.6–0.8  0.750 +0.050" in text and "0.8–1  0.500 −0.400" in text


def test_a_report_is_short_in_a_prompt_and_without_control_characters() -> None:
    report = CalibrationReport((measure_calibration("a\x1b[31m", random_states(0)),), ("a note",))
    assert repr(report).startswith("<CalibrationReport: <Calibration of a") and len(repr(report)) < 120
    assert "\x1b" not in repr(report) + str(report) and str(report).endswith("a note")
    assert report._repr_html_().endswith("a note</div>")
    assert report.fitted_temperature == report.calibrations[0].fitted_temperature


def test_a_bar_is_the_accuracy_of_a_bin_and_an_empty_bin_has_none() -> None:
    calibration = measure_calibration("ten", ten_states(), bins=5, fit_share=0)
    drawn = draw_reliability("", calibration.before.bins)
    assert drawn.heights == pytest.approx([np.nan, np.nan, 0.5, 0.75, 0.5], nan_ok=True)
    assert drawn.gaps() == pytest.approx([np.nan, np.nan, 0, 0.05, -0.4], nan_ok=True)


def test_the_marked_temperature_is_the_lowest_point_of_the_fitting_part() -> None:
    chart = draw_curve(measure_calibration("m", random_states(2)))
    assert chart.marks[0].y == pytest.approx(chart.series[0].y.min())
    assert chart.y.low < chart.marks[0].y < chart.y.high


def test_no_text_of_the_picture_overlaps_another() -> None:
    assert not find_faults(write_svg(draw_calibrations([measure_calibration("model", random_states(0))])))


@pytest.mark.parametrize("count", [1, 2])
def test_few_targets_and_equal_ones_can_be_drawn(count: int) -> None:
    calibration = measure_calibration("few", make_states(np.zeros((count, 1)), np.zeros(count)))
    report = report_calibrations([calibration, calibration])
    assert b"<svg" in write_svg(report.draw()) and "<svg" in report.to_html()  # type: ignore[misc]


def test_the_file_has_the_bins_the_scores_and_the_steps() -> None:
    calibration = measure_calibration("ten", ten_states(), bins=5, has_vector=True)
    data = json.loads(report_calibrations([calibration]).to_json())
    assert (data["format"], data["version"]) == ("pellucid-calibration", 1)
    (found,) = data["calibrations"]
    first = found["settings"][0]
    assert first["ece"]["value"] == pytest.approx(calibration.before.ece.value)
    counts, gap = np.array(first["equal_width"]["counts"]), np.array(first["equal_width"]["gap"])
    assert (counts / counts.sum() * abs(gap)).sum() == pytest.approx(first["ece"]["value"])
    assert found["newton_steps"][-1]["temperature"] == found["fitted_temperature"]
    assert len(found["vector"]["bias"]) == 3


@pytest.mark.parametrize("count", [1, 2, 40])
def test_every_number_can_be_json(count: int) -> None:
    calibration = measure_calibration("few", make_states(np.zeros((count, 1)), np.zeros(count)))
    assert json.loads(report_calibrations([calibration], settings={"window": 8}).to_json())["window"] == 8

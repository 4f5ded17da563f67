"""The report of calibrations: short in a prompt, whole as text, and written by the ending of its name."""

from pathlib import Path

import pytest

from pellucid.base.errors import UsageError
from pellucid.evaluation.calibration.calibrate import CalibrationReport, check_report_output, write_report
from pellucid.evaluation.calibration.measure import measure_calibration
from tests.evaluation.calibration.small_predictions import random_states


def test_a_report_is_short_in_a_prompt_and_without_control_characters() -> None:
    report = CalibrationReport((measure_calibration("a\x1b[31m", random_states(0)),), ("a note",))
    assert repr(report).startswith("<CalibrationReport: <Calibration of a") and len(repr(report)) < 120
    assert "\x1b" not in repr(report) + str(report) and str(report).endswith("a note")
    assert report._repr_html_().endswith("a note</div>")
    assert report.fitted_temperature == report.calibrations[0].fitted_temperature


@pytest.mark.parametrize("name", ["a.json", "a.SVG", "a.html"])
def test_the_ending_says_what_is_written(tmp_path: Path, name: str) -> None:
    report = CalibrationReport((measure_calibration("a", random_states(0)),))
    check_report_output(tmp_path / name)
    write_report(tmp_path / name, report)
    begin = (tmp_path / name).read_bytes()[:300].lower()
    assert {"json": b'"format"', "svg": b"<svg", "html": b"<html"}[name.lower().partition(".")[2]] in begin


@pytest.mark.parametrize("name", ["a.txt", "a", "a.csv"])
def test_another_ending_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="other formats"):
        check_report_output(tmp_path / name)

"""The file of a calibration: plain JSON with every number."""

import json

import numpy as np
import pytest

from pellucid.evaluation.calibration.measure import measure_calibration
from pellucid.evaluation.calibration.report import report_calibrations
from tests.evaluation.calibration.small_predictions import make_states, ten_states


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

"""The file of a calibration: plain JSON with every number, which only a calibration replaces."""

import json
from pathlib import Path

import numpy as np
import pytest

from pellucid.base.errors import FileError
from pellucid.evaluation.calibration.calibration_file import (
    check_calibration_output,
    format_json,
    to_data,
    write_calibrations,
)
from pellucid.evaluation.calibration.measure import measure_calibration
from tests.evaluation.calibration.small_predictions import make_states, random_states, ten_states


def test_the_file_has_the_bins_the_scores_and_the_steps(tmp_path: Path) -> None:
    calibration = measure_calibration("ten", ten_states(), bins=5, has_vector=True)
    write_calibrations(tmp_path / "a.json", [calibration])
    data = json.loads((tmp_path / "a.json").read_text())
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
    assert json.loads(format_json(to_data([calibration], {"window": 8})))["window"] == 8


def test_only_a_calibration_is_replaced(tmp_path: Path) -> None:
    path, calibration = tmp_path / "a.json", measure_calibration("m", random_states(0))
    path.write_text('{"format": "another"}')
    with pytest.raises(FileError):
        write_calibrations(path, [calibration], force=True)
    path.unlink()
    write_calibrations(path, [calibration])
    with pytest.raises(FileError, match="--force"):
        check_calibration_output(path)
    write_calibrations(path, [calibration], force=True)
    assert to_data([calibration])["calibrations"][0]["model"] == "m"

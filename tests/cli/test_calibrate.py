"""`pellucid calibrate`: a table, a picture, JSON and steps; the temperature is saved where asked."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pellucid.evaluation.calibration import measure
from tests.cli.commands import Shell
from tests.data.small_corpora import text_file
from tests.evaluation.small_models import make_model

FEW = ("--split", "line", "--max-targets", "100", "--bins", "5")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text and the models that are measured."""
    place = tmp_path_factory.mktemp("measured")
    text_file(place / "text.txt", 20)
    make_model().save(place / "a")
    return place


@pytest.fixture
def shell(shell: Shell, place: Path, tmp_path: Path) -> Shell:
    shutil.copytree(place, tmp_path, dirs_exist_ok=True)
    return shell


def test_the_table_the_fit_and_the_diagram_are_printed(shell: Shell) -> None:
    done = shell("calibrate", "a", "text.txt", *FEW, "--temperatures", "0.5,2", "--vector")
    assert done.code == 0, done.err
    for words in ("before", "T = 0.5", "T = 2", "fitted T", "vector", "dNLL/dβ", "reliability", "MCE"):
        assert words in done.out


def test_what_is_traced_can_be_explained(shell: Shell) -> None:
    assert shell("calibrate", "a", "text.txt", *FEW, "--trace", "cal.json").code == 0
    for at in ("bins.gap[3]", "ece", "d.inverse_temperature", "temperature"):
        done = shell("explain", "cal.json", "--at", at)
        assert done.code == 0 and " = " in done.out
    assert "expected calibration error" in shell("explain", "cal.json", "--lines", "0").out


def test_json_is_the_file(shell: Shell, tmp_path: Path) -> None:
    done = shell("calibrate", "a", "text.txt", *FEW, "-o", "x.json", "-o", "x.svg", "--json")
    assert done.code == 0
    assert json.loads(done.out) == json.loads((tmp_path / "x.json").read_bytes())
    assert shell("calibrate", "a", "text.txt", *FEW, "-o", "x.svg").code == 2
    assert shell("calibrate", "a", "text.txt", *FEW, "-o", "x.svg", "--force").code == 0


def test_the_curve_is_measured_only_for_what_shows_it(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = list[float]()
    monkeypatch.setattr(measure, "measure_nll", lambda states, at: measured.append(1) or 0.0 * np.array(at))
    assert shell("calibrate", "a", "text.txt", *FEW).code == 0 and not measured
    assert shell("calibrate", "a", "text.txt", *FEW, "--json").code == 0 and len(measured) == 2


def test_nothing_is_saved_unless_asked_and_what_is_done_is_said(shell: Shell, tmp_path: Path) -> None:
    """Random weights know nothing of the text, so that the temperature has no minimum to be saved."""
    settings = tmp_path / "a" / "generation_config.json"
    assert shell("calibrate", "a", "text.txt", *FEW).code == 0 and not settings.exists()
    done = shell("calibrate", "a", "text.txt", *FEW, "--save")
    assert done.code == 0 and "No temperature is saved" in done.out and not settings.exists()

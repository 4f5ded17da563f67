"""Reports are written whole, in the format that the name says, and never over another file."""

import json
from pathlib import Path

import numpy as np
import pytest

from pellucid.base.errors import FileError, UsageError
from pellucid.report.figure import Figure, group_plots
from pellucid.report.file import ReportFile
from pellucid.report.items import Table
from pellucid.report.report import Report
from tests.report.full_view import FULL

FILE = ReportFile("check", "a file of a check", "pellucid-check")
REPORT = Report(
    "a check",
    "One is found.",
    [["a note"], [Table([["", "a"], ["loss", "1.25"]])], [FULL]],
    FILE,
    lambda: {"loss": 1.25},
    lambda: Figure("a check", group_plots(FULL.plots)),
)


def test_the_json_file_says_its_format_and_has_every_number(tmp_path: Path) -> None:
    REPORT.save(tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text()) == {
        "format": FILE.format,
        "version": 1,
        "loss": 1.25,
    }
    with pytest.raises(ValueError, match="not JSON compliant"):
        Report("", file=FILE, to_data=lambda: {"loss": np.nan}).to_json()


@pytest.mark.parametrize("name", ["a.json", "a.html", "a.SVG"])
def test_only_a_file_of_the_same_kind_is_replaced_and_only_if_asked(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    REPORT.save(file)
    begin = file.read_bytes()[:300].lower()
    assert {".json": b'"format"', ".svg": b"<svg", ".html": b"<html"}[file.suffix.lower()] in begin
    with pytest.raises(FileError, match="--force"):
        REPORT.save(file)
    REPORT.save(file, force=True)
    file.write_text("mine")
    with pytest.raises(FileError):
        FILE.check(file, force=True)
    with pytest.raises(FileError):
        REPORT.save(file, force=True)
    assert file.read_text() == "mine"


@pytest.mark.parametrize("name", ["a.pdf", "a", "a.csv"])
def test_an_unknown_ending_is_refused_before_the_work(name: str) -> None:
    with pytest.raises(UsageError):
        FILE.check(Path(name))


def test_a_report_without_plots_is_not_a_picture(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no plots"):
        Report("a", file=FILE, draw=lambda: Figure("a", [])).save(tmp_path / "a.svg")

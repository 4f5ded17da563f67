"""Looks are written whole, in the format that the name says, and never over another file."""

import json
from pathlib import Path

import pytest

from pellucid.base.errors import FileError, UsageError
from pellucid.report.view_file import LookRecord, check_look_output, write_look
from tests.report.full_view import FULL

LOOK = LookRecord("tiny", [["A", "·B"]], [FULL])


def test_the_json_file_has_every_number_and_no_nan(tmp_path: Path) -> None:
    write_look(tmp_path / "a.json", LOOK)
    found = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert (found["format"], found["version"], found["prompts"]) == ("pellucid-look", 1, [["A", "·B"]])
    assert found["views"][0]["data"] == {"entropy": [[0.5, None]]}
    assert found["views"][0]["tables"][0]["rows"][0] == ["0.1", "·a<b", 0.12345]


@pytest.mark.parametrize("name", ["a.json", "a.html", "a.svg"])
def test_only_a_look_is_replaced_and_only_if_asked(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    write_look(file, LOOK)
    with pytest.raises(FileError):
        write_look(file, LOOK)
    write_look(file, LOOK, force=True)
    file.write_text("mine")
    with pytest.raises(FileError):
        write_look(file, LOOK, force=True)
    assert file.read_text() == "mine"


def test_an_unknown_ending_is_refused_before_the_work() -> None:
    with pytest.raises(UsageError):
        check_look_output(Path("a.pdf"))

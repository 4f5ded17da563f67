"""The worked pages of docs/inside/ are whole, and what a run of the real model gives."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "docs" / "inside"


@pytest.mark.parametrize("name", ["animal", "dog-bites-man"])
def test_a_page_shows_its_pictures_and_left_no_place_open(name: str) -> None:
    text = (FOLDER / f"{name}.md").read_text("utf-8")
    assert "{{" not in text
    assert text.count(".svg)") == 2
    for picture in FOLDER.glob(f"{name[:3]}*.svg"):
        assert f"]({picture.name})" in text
        assert ElementTree.fromstring(picture.read_text("utf-8")).tag.endswith("svg")


@pytest.mark.torture
@pytest.mark.skipif("PELLUCID_SMOLLM2" not in os.environ, reason="PELLUCID_SMOLLM2 names no file")
def test_every_number_is_that_of_a_run() -> None:
    """Takes minutes: a thousand patched runs of a model of 135 million parameters for each page."""
    script = ROOT / "scripts" / "worked_pages.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

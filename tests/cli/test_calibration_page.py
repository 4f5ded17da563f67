"""What docs/calibration.md shows is what its commands and examples print."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "calibration.md").read_text("utf-8")


def test_the_commands_and_examples_of_the_page_print_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "path", [str(ROOT / "scripts"), *sys.path])
    spec = importlib.util.spec_from_file_location("generation_page", ROOT / "scripts" / "generation_page.py")
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.run_examples(PAGE).splitlines() == PAGE.splitlines()
    assert PAGE.count("$ pellucid") >= 4 and PAGE.count("```python") >= 2

"""What docs/python.md shows is what its examples print."""

import importlib.util
from pathlib import Path

import pytest

from pellucid.workbench import Model

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "python.md").read_text("utf-8")


def test_the_examples_of_the_page_print_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("python_page", ROOT / "scripts" / "python_page.py")
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made = script.python_page(PAGE)
    assert made.splitlines() == PAGE.splitlines()
    assert PAGE.count("```python") == PAGE.count("```text") >= 8


def test_every_public_method_has_its_line() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    for name in (name for name in vars(Model) if not name.startswith("_")):
        (line,) = (line for line in lines if line.startswith((f"| `{name}`", f"| `{name}(")))
        assert len(line.split("|")[2].strip()) > 10, name

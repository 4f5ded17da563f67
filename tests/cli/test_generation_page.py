"""What a page shows is what its commands and examples print."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(
    ("page", "make", "commands", "examples"),
    [("generation", "generation_page", 5, 3), ("calibration", "run_examples", 4, 2)],
)
def test_the_commands_and_examples_of_a_page_print_what_it_shows(
    page: str, make: str, commands: int, examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    script = importlib.import_module("generation_page")
    assert getattr(script, make)(text).splitlines() == text.splitlines()
    assert text.count("$ pellucid") >= commands and text.count("```python") >= examples

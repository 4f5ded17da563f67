"""The pages about generation and calibration have commands and examples.

That these print what the pages show is asked of every page at once, in `tests/architecture/test_docs.py`.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(("page", "commands", "examples"), [("generation", 5, 3), ("calibration", 4, 2)])
def test_a_page_has_commands_and_examples(page: str, commands: int, examples: int) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    assert text.count("$ pellucid") >= commands and text.count("```python") >= examples

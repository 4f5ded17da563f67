"""docs/python.md has an output under each example, and a line for each public method.

That the examples print these outputs is asked of every page at once, in `tests/architecture/test_docs.py`.
"""

from pathlib import Path

from pellucid.model import Model

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "python.md").read_text("utf-8")


def test_every_example_of_the_page_has_its_output() -> None:
    assert PAGE.count("```python") == PAGE.count("```text") >= 8


def test_every_public_method_has_its_line() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    for name in (name for name in vars(Model) if not name.startswith("_")):
        (line,) = (line for line in lines if line.startswith((f"| `{name}`", f"| `{name}(")))
        assert len(line.split("|")[2].strip()) > 10, name

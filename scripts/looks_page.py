"""docs/looking-inside.md with the table of views and their settings, and the output of its commands."""

import re

from generation_page import run_examples

from pellucid.interpretability.look_kinds import LOOKS


def looks_page(text: str) -> str:
    """Returns the page with its table made anew and each command run."""
    body = "\n".join(["| view | shows | settings |", "|---|---|---|", *map(_row, LOOKS)])
    pattern = r"(<!-- views -->\n).*?(<!-- /views -->)"
    text, found = re.subn(pattern, lambda m: f"{m[1]}{body}\n{m[2]}", text, flags=re.DOTALL)
    assert found == 1, "docs/looking-inside.md has no place for its views"
    return run_examples(text)


def _row(kind: str) -> str:
    settings = ", ".join(f"`{name}`" for name in LOOKS[kind].settings())
    return f"| `{kind}` | {LOOKS[kind].meaning} | {settings} |"

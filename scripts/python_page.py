"""docs/python.md with the output of its examples, and a table of the methods of `Model`."""

import contextlib
import functools
import inspect
import io
import os
import re
import tempfile
from collections.abc import Iterator

import pellucid


def python_page(text: str) -> str:
    """Returns the page with each example run in order, and its output written below it."""
    names: dict[str, object] = {}

    def run(block: re.Match[str]) -> str:
        return f"{block[1]}{block[2]}{block[3]}{_output(block[2], names)}```\n"

    with tempfile.TemporaryDirectory() as folder, _inside(folder):
        text = re.sub(r"(```python\n)(.*?)(```\n\n```text\n).*?```\n", run, text, flags=re.DOTALL)
    table = "\n".join(methods())
    pattern = r"(<!-- methods -->\n).*?(<!-- /methods -->)"
    return re.sub(pattern, lambda found: f"{found[1]}{table}\n{found[2]}", text, flags=re.DOTALL)


def methods() -> Iterator[str]:
    """A line for every public method and property of `Model`."""
    yield "| method | what it does |\n|---|---|"
    for name, member in list(vars(pellucid.Model).items()):
        if name.startswith("_"):
            continue
        is_value = isinstance(member, property | functools.cached_property)
        shown = member if is_value else getattr(pellucid.Model, name)
        call = name if is_value else f"{name}({_parameters(shown)})"
        summary = " ".join((inspect.getdoc(shown) or "").partition("\n\n")[0].split())
        yield f"| `{call}` | {summary.replace('|', chr(92) + '|')} |"


def _parameters(function: object) -> str:
    """The required parameters by name, and dots for the rest."""
    assert callable(function)
    given = list(inspect.signature(function).parameters.values())[not inspect.ismethod(function) :]
    needed = [
        entry.name for entry in given if entry.default is entry.empty and entry.kind < entry.VAR_POSITIONAL
    ]
    return ", ".join([*needed, *["…"] * (len(needed) < len(given))])


def _output(code: str, names: dict[str, object]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "docs/python.md", "exec"), names)
    return out.getvalue()


@contextlib.contextmanager
def _inside(folder: str) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)

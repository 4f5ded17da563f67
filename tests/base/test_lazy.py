"""A method whose function is imported when it is first asked for is the function itself from then on."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import pellucid.model
from pellucid.base.lazy import attach
from pellucid.model import VERBS, Model


def test_a_method_is_imported_when_it_is_first_asked_for() -> None:
    class Line:
        def __str__(self) -> str:
            return "a\nb"

    attach(Line, {"textwrap": ("dedent",), "no_such_module": ("nothing",)})
    assert Line.__dict__["dedent"] is not __import__("textwrap").dedent
    assert Line.dedent is __import__("textwrap").dedent is Line.__dict__["dedent"]
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        _ = Line().nothing


def test_a_verb_is_a_method_and_a_function_with_one_signature() -> None:
    for module, names in VERBS.items():
        for name in names:
            function = getattr(__import__(module, fromlist=[name]), name)
            assert getattr(Model, name) is function
            first, *others = inspect.signature(function).parameters
            assert first in ("model", "a")
            assert list(inspect.signature(getattr(pellucid.load("abcd"), name)).parameters) == others


def test_editors_see_the_verbs_that_are_attached() -> None:
    """The imports for type checkers in model.py are those of its table."""
    tree = ast.parse(Path(pellucid.model.__file__).read_text("utf-8"))
    rooms = {module.split(".")[1] for module in VERBS}
    seen = {
        (node.module, alias.name)
        for block in tree.body
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[1:2][0:1] != ["engine"]
        for alias in node.names
        if (node.module or "").startswith("pellucid") and (node.module or "").split(".")[1] in rooms
    }
    assert seen == {(module, name) for module, names in VERBS.items() for name in names}


def test_opening_a_model_imports_no_room_of_a_verb() -> None:
    script = (
        "import sys, pellucid; pellucid.load('abcd').encode('A B')\n"
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('pellucid.')}\n"
        "print(sorted(rooms & {'explanation', 'generation', 'evaluation', 'training', 'verification'}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n", done.stdout

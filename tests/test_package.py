"""What `import pellucid` offers is listed, importable, typed and shown by an example that runs."""

import ast
import inspect
import rlcompleter
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import pellucid
from pellucid.base import errors
from pellucid.reference.ops import table

FUNCTIONS = [
    "calibrate",
    "chat",
    "compare",
    "compare_tokenizers",
    "edit",
    "evaluate",
    "explain",
    "explore",
    "generate",
    "get",
    "load",
    "look",
    "quantize",
    "record",
    "save",
    "score",
    "trace",
    "train",
    "verify",
    "verify_self",
]
CLASSES = [
    "Conversation",
    "Engine",
    "Model",
    "ModelConfig",
    "Report",
    "Request",
    "Run",
    "Sampling",
    "Tape",
    "Tokenizer",
    "Trace",
]
ERRORS = [name for name, thing in vars(errors).items() if isinstance(thing, type) and name.endswith("Error")]


def test_the_public_names_are_these() -> None:
    wanted = [*FUNCTIONS, *ERRORS, *CLASSES, "ops"]
    assert pellucid.__all__ == sorted(wanted) and len(ERRORS) == 9
    assert sorted(dir(pellucid)) == sorted([*wanted, "__version__"])
    assert not hasattr(pellucid, "Any")


def test_each_public_name_is_the_thing_of_that_name_whatever_was_imported_before() -> None:
    """No folder of the package has the name of a function, which its first import would replace."""
    import pellucid.explanation.derive
    import pellucid.verbs

    for name in pellucid.__all__:
        found = getattr(pellucid, name)
        assert found.__name__ == ("pellucid.ops" if name == "ops" else name)
        assert isinstance(found, ModuleType) is (name == "ops")


def test_every_public_name_is_imported_for_type_checkers_from_where_it_is() -> None:
    source = Path(pellucid.__file__)
    (block,) = (node for node in ast.parse(source.read_text("utf-8")).body if isinstance(node, ast.If))
    listed = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert listed == {"ops": "pellucid"} | {
        name: home for home, names in pellucid._HOMES.items() for name in names
    }
    assert sorted(listed) == pellucid.__all__
    assert source.with_name("py.typed").exists()


@pytest.mark.parametrize("name", [*FUNCTIONS, "Model", "ModelConfig", "Tape", "ops", "PellucidError"])
def test_every_public_function_and_class_has_an_example(name: str) -> None:
    """The doctests of the package run them."""
    assert ">>> " in (inspect.getdoc(getattr(pellucid, name)) or "")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_parameter_of_a_public_function_is_typed(name: str) -> None:
    signature = inspect.signature(getattr(pellucid, name))
    untyped = [entry.name for entry in signature.parameters.values() if entry.annotation is entry.empty]
    assert not untyped and signature.return_annotation is not signature.empty


LOOSE = {
    ("chat", "return"),
    ("explain", "run"),
    ("explore", "run"),
    ("generate", "prompt"),
    ("generate", "return"),
    ("look", "settings"),
    ("train", "overrides"),
}
"""What is of any type: settings by their names, and what the overloads of a function say."""


def test_nothing_public_is_of_any_type_where_a_type_exists() -> None:
    found = set()
    for name in FUNCTIONS:
        signature = inspect.signature(getattr(pellucid, name))
        types = {entry.name: entry.annotation for entry in signature.parameters.values()}
        types["return"] = signature.return_annotation
        found |= {(name, parameter) for parameter, kind in types.items() if kind in (Any, "Any")}
    assert found == LOOSE


def test_save_has_the_signature_of_its_method() -> None:
    """The other verbs are their methods: `tests/model/test_model_names.py`."""
    method, function = (inspect.signature(owner.save) for owner in (pellucid.Model, pellucid))
    assert list(method.parameters.values())[1:] == list(function.parameters.values())[1:]


def test_ops_are_the_operations_that_have_a_gradient() -> None:
    wanted = {name: op for name, op in table().items() if op.back is not None}
    assert {name: getattr(pellucid.ops, name) for name in pellucid.ops.__all__} == wanted


def test_tab_completes_the_public_names() -> None:
    found = rlcompleter.Completer({"pellucid": pellucid}).attr_matches("pellucid.")
    assert sorted(name.rstrip("()") for name in found) == [f"pellucid.{name}" for name in pellucid.__all__]


def test_importing_takes_under_150_ms_and_neither_torch_nor_numpy() -> None:
    """The best of five, because other tests run at the same time."""
    script = (
        "import sys, time; start = time.perf_counter(); import pellucid; dir(pellucid)\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)\nprint(time.perf_counter() - start)"
    )
    times = [float(subprocess.check_output([sys.executable, "-c", script])) for _ in range(5)]
    assert min(times) < 0.15

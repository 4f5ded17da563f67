"""Imports point downwards, the specification never sees torch, and no file is a drawer for odds and ends."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pellucid

PACKAGE = Path(pellucid.__file__).parent
LAYERS = (
    {"errors", "format"},
    {"arguments", "dtypes", "notebook", "patterns", "registry"},
    {"files", "strict"},
    {"names"},
    {"parts"},
    {"config"},
    {"text", "reference", "model", "cost"},
    {"pretrained", "corpora", "figures"},
    {"explain", "interop"},
    {"judge", "data"},
    {"cards", "generation"},
    {"evaluation"},
    {"training"},
    {"workbench"},
    {"checks"},
    {"lessons", "lab"},
    {"explorer"},
    {"server"},
    {"cli"},
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
ALONE = {"typer": "cli", "rich": "cli"}
FILES = sorted(PACKAGE.rglob("*.py"))


def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def unit(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_an_import_points_to_a_lower_layer(file: Path) -> None:
    here = unit(file)
    if here == "__init__":
        return  # it imports when a name is used, or for type checkers alone; see the next test
    for name in imports(file):
        package, _, rest = name.partition(".")
        there = rest.partition(".")[0]
        if package == "pellucid" and there in LEVEL and there != here:
            assert LEVEL[there] < LEVEL[here], f"{here} imports {there}"
        if package in ALONE:
            assert here == ALONE[package], f"{here} imports {package}"


def test_importing_the_package_imports_nothing_of_it() -> None:
    script = "import sys, pellucid; sys.exit(any(name.startswith('pellucid.') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_every_unit_of_the_package_has_a_layer() -> None:
    units = {unit(file) for file in FILES} - {"__init__"}
    assert units <= set(LEVEL)


def test_no_command_without_torch_imports_torch() -> None:
    script = (
        "import sys, pellucid.cli, pellucid.workbench, pellucid.cost, pellucid.judge.mistakes, "
        "pellucid.explain.overview, pellucid.explain.trace_file, pellucid.judge.replay, "
        "pellucid.judge.judge_run, pellucid.judge.recorded, pellucid.cards.probe, "
        "pellucid.cards.conventions, pellucid.interop.resolve, pellucid.interop.gguf\n"
        "pellucid.workbench.load('abcd').explain('A B', at='probs[1,2]')\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_no_file_is_a_drawer_for_odds_and_ends() -> None:
    drawers = {"utils", "util", "helpers", "common", "misc", "manager", "base"}
    assert not [file for file in FILES if file.stem in drawers]


def test_every_file_says_its_idea_in_its_first_line() -> None:
    for file in FILES:
        doc = ast.get_docstring(ast.parse(file.read_text("utf-8")))
        assert doc or file.name == "__main__.py", file


def test_nothing_of_an_untrusted_file_is_ever_run() -> None:
    """No pickle, no evaluated text, no code from a model's folder; `torch.load` with weights_only alone."""
    calls = {"eval", "exec", "pickle.load", "pickle.loads", "yaml.load", "marshal.loads", "np.load"}
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called, given = (
                ast.unparse(node.func),
                {word.arg: ast.unparse(word.value) for word in node.keywords},
            )
            assert called not in calls, f"{file}: {called}"
            assert "trust_remote_code" not in given, file
            if called == "torch.load":
                assert given.get("weights_only") == "True", file

"""Names and prose use the field's words: a class name once, a verb for a function, no private word."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

import pellucid

PACKAGE = Path(pellucid.__file__).parent
ROOT = PACKAGE.parent
FILES = sorted(PACKAGE.rglob("*.py"))
PROSE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
IRREGULAR = frozenset(
    [
        "begun",
        "bound",
        "built",
        "chosen",
        "dealt",
        "done",
        "drawn",
        "found",
        "given",
        "gone",
        "held",
        "kept",
        "known",
        "left",
        "lost",
        "made",
        "meant",
        "met",
        "seen",
        "sent",
        "shown",
        "sought",
        "spread",
        "taken",
        "thrown",
        "told",
        "written",
    ]
)
"""Participles without -ed, except those that are also a verb's base form (read, set, split, cut)."""
VERBS_IN_ED = {"embed", "unembed", "feed", "need", "seed"}
PRIVATE_WORDS = (
    r"dice",
    r"told(_\w+)?",
    r"whereabouts",
    r"sharpness",
    r"weightless",
    r"AskedWrongly",
    r"first_goes_first",
    r"first_alone",
    r"throw_again",
    r"torch_dice",
    r"cuttable",
    r"settled?",
    r"initialis\w+",
    r"normalis\w+",
    r"so[- ]man(y|iest)",
    r"nobody",
    r"(?<!here )is no (?!longer|more|less|such|need)",
    r"(?<!here )are no (?!longer|more|less|such)",
    r"of one's own",
    r"leave \w+ away",
    r"surprises?",
)
"""Words of no field: each has a standard term. A word with another use of its own is not listed."""


def functions(tree: ast.AST) -> list[str]:
    """Returns the names of the functions and methods of a module that are not properties."""
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and not any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]


def is_participle(name: str) -> bool:
    word = name.strip("_")
    return word in IRREGULAR or (word.isalpha() and word.endswith("ed") and word not in VERBS_IN_ED)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_a_function_is_a_verb(file: Path) -> None:
    assert not [name for name in functions(ast.parse(file.read_text("utf-8"))) if is_participle(name)]


def test_no_class_name_is_defined_twice() -> None:
    where = defaultdict(list)
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                where[node.name].append(str(file.relative_to(PACKAGE)))
    assert not {name: files for name, files in where.items() if len(files) > 1}


@pytest.mark.parametrize("file", [*FILES, *PROSE], ids=lambda file: str(file.relative_to(ROOT)))
def test_no_private_word(file: Path) -> None:
    if file.name == "log.md":
        return  # dated notes stay as they were written
    if ("stories" in file.parts and file.parent.name in ("levels", "plots")) or file.name == "classes.py":
        return  # the words of the stories themselves
    text = file.read_text("utf-8")
    pattern = re.compile(rf"\b_?(?:{'|'.join(PRIVATE_WORDS)})\b")
    found = [line.strip() for line in text.splitlines() if pattern.search(line)]
    assert not found

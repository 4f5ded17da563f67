"""Names and prose use the field's words: a class name once, a verb for a function, no private word."""

import ast
import re
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pellucid

PACKAGE = Path(pellucid.__file__).parent
ROOT = PACKAGE.parent
FILES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
PROSE = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
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
    r"told(?! apart)(_\w+)?",
    r"whereabouts",
    r"sharpness",
    r"weightless",
    r"AskedWrongly",
    r"asked wrongly",
    r"(first_)?goes_first",
    r"first_alone",
    r"throw_again",
    r"torch_dice",
    r"thrown?",
    r"cuttable",
    r"settled?",
    r"fence",
    r"pulse",
    r"hearing",
    r"speaks",
    r"Fed",
    r"Mix",
    r"(queries|keys) turned",
    r"_slopes",
    r"initialis\w+",
    r"normalis\w+",
    r"so[- ]man(y|iest)",
    r"nobody",
    r"somebody",
    r"strangers?",
    r"(?<!here )is no (?!longer|more|less|such|need)",
    r"(?<!here )are no (?!longer|more|less|such)",
    r"of one'?s own",
    r"what was held out",
    r"who only looks",
    r"leave \w+ away",
    r"surprises?",
)
"""Words of no field: each has a standard term. A word with another use of its own is not listed."""


class Definition(NamedTuple):
    """A module, a class or a function with its docstring; a module has no name."""

    kind: type[ast.AST]
    name: str
    docstring: str
    is_property: bool


@cache
def find_definitions(file: Path) -> list[Definition]:
    """Returns all definitions of a file; its tree, which would slow each search for garbage, is not kept."""
    return [
        Definition(
            type(node),
            getattr(node, "name", ""),
            ast.get_docstring(node) or "",
            any("property" in ast.unparse(decorator) for decorator in getattr(node, "decorator_list", ())),
        )
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def functions(file: Path) -> list[str]:
    """Returns the names of the functions and methods of a file that are not properties."""
    return [
        found.name
        for found in find_definitions(file)
        if found.kind is ast.FunctionDef and not found.is_property
    ]


def is_participle(name: str) -> bool:
    word = name.strip("_")
    return word in IRREGULAR or (word.isalpha() and word.endswith("ed") and word not in VERBS_IN_ED)


def check(files: list[Path], find: Callable[[Path], list[str]]) -> None:
    """Fails with all that is found in the files, one line each."""
    found = [(file, word) for file in files for word in find(file)]
    assert not found, "\n".join(["", *(f"{file.relative_to(ROOT)}: {word}" for file, word in found)])


def test_a_function_is_a_verb() -> None:
    check(FILES, lambda file: [name for name in functions(file) if is_participle(name)])


def test_no_class_name_is_defined_twice() -> None:
    where = defaultdict(list)
    for file in FILES:
        for found in find_definitions(file):
            if found.kind is ast.ClassDef:
                where[found.name].append(str(file.relative_to(PACKAGE)))
    assert not {name: files for name, files in where.items() if len(files) > 1}


PATTERN = re.compile(rf"\b_?(?:{'|'.join(PRIVATE_WORDS)})\b")
OLD_NAME = re.compile(r'"[\w.]+": "[\w.]+",')
"""A row of a table of old names that files of users may still have, each with its new one."""
STORIES = {
    file.name for folder in ("levels", "plots") for file in PACKAGE.glob(f"data/generated/stories/{folder}/*")
}
OTHER_USE = {"annotate.py", "log.md", "CHANGELOG.md", *STORIES}
"""The words of the stories, dated notes, and the names that a version changed."""


def test_no_private_word() -> None:
    def private(file: Path) -> list[str]:
        lines = [line.strip() for line in file.read_text("utf-8").splitlines()]
        return [line for line in lines if PATTERN.search(line) and not OLD_NAME.fullmatch(line)]

    check([file for file in (*FILES, *PROSE) if file.name not in OTHER_USE], private)


def test_no_private_word_names_a_test() -> None:
    check(TESTS, lambda file: [name for name in functions(file) if PATTERN.search(name.replace("_", " "))])


def test_a_docstring_of_a_module_or_function_begins_with_a_noun_or_a_verb() -> None:
    questions = {"What", "Who", "Whether", "How", "Where", "Which"}

    def begins_with_one(file: Path) -> list[str]:
        texts = [found.docstring for found in find_definitions(file) if found.kind is not ast.ClassDef]
        return [text.splitlines()[0] for text in texts if text and text.split()[0].rstrip(",:.") in questions]

    check(FILES, begins_with_one)

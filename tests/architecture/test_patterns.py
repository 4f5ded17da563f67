"""No pattern that reads what a user gives takes a time that grows with the square of its length."""

import ast
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pellucid

PACKAGE = Path(pellucid.__file__).parent
OWN_TEXTS = (
    *(
        "data/generated/stories",
        "learning/lessons",
        "explanation/notation.py",
        "explanation/typeset.py",
        "server/explorer/size.py",
    ),
    "learning/sheets/layout.py",
)
"""Where patterns read only what the package itself has written: its grammar, lessons, formulas and names."""
READ_FROM_A_PLACE = {"match", "fullmatch"}
METHODS = READ_FROM_A_PLACE | {"search", "sub", "split", "findall", "finditer"}
FLAGS = {"re.DOTALL", "re.MULTILINE", "re.ASCII", "re.IGNORECASE", "re.VERBOSE"}
PREFIXES = ("", "a", "1", '"', "[", "<", "a[", "1.", "a=", "$`")
RUNS = (" ", "a", "1", "(", "[", '"', "'", "_", "-", ".", "{", "*", "`", ":", ",", "\n", "/", "<", "@", "a.")
SHORT, LONG = 500, 3000


def list_patterns(source: str) -> Iterator[tuple[int, re.Pattern[str], bool]]:
    """Yields the line of each literal pattern of a module, the pattern, and whether it is only tried at one
    place of a text."""
    tree = ast.parse(source)
    names = {
        id(node.value): ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
            continue
        function, pattern = ast.unparse(node.func), node.args[0].value
        if not function.startswith("re.") or not isinstance(pattern, str):
            continue
        said = ast.unparse(node)
        flags = sum(getattr(re, flag.removeprefix("re.")) for flag in FLAGS if flag in said)
        methods = {function.removeprefix("re.")}
        if function == "re.compile":
            methods = set(re.findall(rf"\b{re.escape(names.get(id(node), '?'))}\.(\w+)", source)) & METHODS
        yield node.lineno, re.compile(pattern, flags), bool(methods) and methods <= READ_FROM_A_PLACE


def read(pattern: re.Pattern[str], text: str, is_placed: bool) -> float:
    """Returns the seconds of the processor that a pattern takes for a text."""
    began = time.process_time()
    if is_placed:
        pattern.fullmatch(text)
    else:
        for _ in pattern.finditer(text):
            pass
    return time.process_time() - began


def find_slow_text(pattern: re.Pattern[str], is_placed: bool) -> str | None:
    """Returns how a text begins for which the time grows faster than in proportion; None where none does."""
    for prefix in PREFIXES:
        for run in RUNS:
            texts = [prefix + run * (size // len(run)) + "\0" for size in (SHORT, LONG)]
            if read(pattern, texts[1], is_placed) < 0.002:
                continue
            short, long = (min(read(pattern, text, is_placed) for _ in range(3)) for text in texts)
            if long > 0.002 and long > 15 * short:
                return texts[0][:8]
    return None


def test_a_quadratic_pattern_is_found_and_its_possessive_form_is_not() -> None:
    assert find_slow_text(re.compile(r"\s*(a)?\s*b"), True)
    assert not find_slow_text(re.compile(r"\s*+(a)?\s*+b"), True)
    assert find_slow_text(re.compile(r"\d+ threads"), False)


def test_no_pattern_that_reads_what_a_user_gives_is_quadratic() -> None:
    slow, count = [], 0
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        if place.startswith(OWN_TEXTS) or "re." not in (source := path.read_text("utf-8")):
            continue
        if not re.search(r"\bre\.(compile|" + "|".join(METHODS) + r")\(", source):
            continue
        for line, pattern, is_placed in list_patterns(source):
            count += 1
            if text := find_slow_text(pattern, is_placed):
                slow.append(f"{place}:{line}: {pattern.pattern} for {text!r}…")
    assert not slow and count > 80

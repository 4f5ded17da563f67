"""The operators for C: the places of a source where each applies, by its tokens.

The sources are formatted: an operator with two operands has a space on either side, a pointer has not.
"""

import re

from tests.faults.drawn.mutation import Place
from tests.faults.drawn.sizes import change_float, change_integer

NO_CODE = re.compile(
    r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
    re.S | re.M,
)
"""Comments, strings, and lines of the preprocessor."""
SWAPS = {
    " + ": ("arithmetic", " - "),
    " - ": ("arithmetic", " + "),
    " * ": ("arithmetic", " / "),
    " / ": ("arithmetic", " * "),
    " < ": ("comparison", " <= "),
    " <= ": ("comparison", " < "),
    " > ": ("comparison", " >= "),
    " >= ": ("comparison", " > "),
    " == ": ("comparison", " != "),
    " != ": ("comparison", " == "),
    " += ": ("sum replaced", " = "),
    " -= ": ("sum replaced", " = "),
    " && ": ("condition negated", " || "),
    " || ": ("condition negated", " && "),
}
OPERATOR = re.compile("|".join(re.escape(text) for text in sorted(SWAPS, key=len, reverse=True)))
NUMBER = re.compile(
    r"(?<![\w.])(?:0[xX][0-9a-fA-F]+|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)[fFuUlL]*(?![\w.])"
)
INDEX = re.compile(r"(?<=\w)\[([^\[\]]+)\]")
TYPED = re.compile(
    r"^\s*(?:static |const |INLINE |typedef |extern )*(?:u?int\d*_t|int|float|double|char|void|v[fi])\b"
)
"""The beginning of a declaration, whose brackets are sizes."""


def find_places(file: str, source: str) -> list[Place]:
    """Returns every place of a C source, in order."""
    code = NO_CODE.sub(lambda match: re.sub(r"[^\n]", "\0", match[0]), source)
    found = list[Place]()
    for number, line in enumerate(code.splitlines(), start=1):
        header = find_loop_header(line)
        for match in OPERATOR.finditer(line):
            operator, new = SWAPS[match[0]]
            if operator == "sum replaced" and match.start() in header:
                continue  # a loop that does not end is seen by everybody
            found.append(Place(file, number, match.start(), match[0], (new,), operator))
        for match in NUMBER.finditer(line):
            if options := _change(match[0]):
                found.append(Place(file, number, match.start(), match[0], options, "constant"))
        for match in INDEX.finditer(line):
            if not TYPED.match(line) or "=" in line[: match.start()]:
                inner = match[1]
                found.append(
                    Place(file, number, match.start(1), inner, (f"{inner} + 1", f"{inner} - 1"), "index")
                )
    return sorted(found)


def find_loop_header(line: str) -> range:
    """Returns the columns in the parentheses of `for (…)`; none where there is no loop."""
    start, depth = line.find("for ("), 0
    for at in range(start, len(line) if start >= 0 else start):
        depth += {"(": 1, ")": -1}.get(line[at], 0)
        if line[at] == ")" and depth == 0:
            return range(start, at)
    return range(max(start, 0), len(line) if start >= 0 else 0)


def _change(text: str) -> tuple[str, ...]:
    digits = text.rstrip("fFuUlL") if not text.lower().startswith("0x") else text.rstrip("uUlL")
    suffix = text[len(digits) :]
    if any(sign in digits for sign in ".eE") and not digits.lower().startswith("0x"):
        return tuple(f"{value}{suffix}" for value in change_float(float(digits)))
    return tuple(f"{value}{suffix}" for value in change_integer(int(digits, 0)))

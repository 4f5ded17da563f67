r"""Regular expressions: the subset of Python's `re` that describes a set of texts, and nothing else.

| written | means |
|---|---|
| `a` `é` `\.` `\n` `\x41` `\u00e9` | a character |
| `.` | any character but a line feed |
| `\d` `\w` `\s` `\D` `\W` `\S` | a digit, a letter or digit or `_`, white space, and any other; of ASCII |
| `[a-zé_]` `[^"\\]` | a character of a set, or of its complement |
| `(…)` `(?:…)` `(?P<name>…)` | a group |
| `x\|y` | one or the other |
| `*` `+` `?` `{3}` `{2,}` `{2,5}` | repetition; lazy ones (`*?`) are the same texts |
| `^` `$` | at the ends only, where they change nothing: the whole output must match |

The texts are those for which `re.fullmatch(pattern, text, re.ASCII)` is true.
"""

import math
import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, NoReturn

from pellucid.base.errors import UsageError, show
from pellucid.generation.constraints.automaton import Automaton, build_automaton
from pellucid.generation.constraints.expressions import (
    EMPTY_TEXT,
    LAST,
    Expressions,
    Ranges,
    encode_set,
    make_ranges,
    negate,
)

MOST_CHARACTERS = 10_000
"""Of a pattern."""
MOST_NESTED = 50
"""Groups within groups."""
MOST_REPEATS = 10_000

DIGITS: Ranges = ((48, 57),)
WORD: Ranges = make_ranges([*DIGITS, (65, 90), (95, 95), (97, 122)])
SPACE: Ranges = ((9, 13), (32, 32))
CLASSES = {"d": DIGITS, "w": WORD, "s": SPACE, "D": negate(DIGITS), "W": negate(WORD), "S": negate(SPACE)}
ANY = negate(((10, 10),))
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "0": "\0"}
HEX = {"x": 2, "u": 4, "U": 8}
GROUPS = {
    "=": "a lookahead",
    "!": "a negative lookahead",
    "<=": "a lookbehind",
    "<!": "a negative lookbehind",
    "P=": "a back-reference",
    "P>": "a recursion",
    "(": "a condition",
    ">": "an atomic group",
    "#": "a comment",
}
"""Groups that begin with (? and are not sets of texts, or not needed."""
_COUNTS = re.compile(r"\{(\d*)(?:(,)(\d*))?\}")
_NAMED = re.compile(r"\?P<[A-Za-z_]\w*>", re.ASCII)


class Alternative(NamedTuple):
    """One alternative of a whole pattern, without its anchors."""

    node: int
    is_anchored_before: bool
    is_anchored_after: bool


def compile_regex(pattern: str) -> Automaton:
    """Returns the automaton of the texts that match a pattern as a whole.

    >>> colors = compile_regex("(red|gr[ae]y)!?")
    >>> [colors.accepts(text) for text in (b"red", b"grey!", b"gray!!", b"re")]
    [True, True, False, False]
    """
    expressions = Expressions(f"regex={show(pattern)}")
    branches = parse_pattern(pattern, expressions, partial(encode_set, expressions), expressions.name)
    return build_automaton(expressions, expressions.union(branch.node for branch in branches))


def parse_pattern(
    pattern: str, expressions: Expressions, encode: Callable[[Ranges], int], name: str
) -> list[Alternative]:
    """Returns the alternatives of a pattern; `encode` returns the node of a set of characters."""
    return _PatternParser(pattern, expressions, encode, name).parse()


class _PatternParser:
    def __init__(
        self, pattern: str, expressions: Expressions, encode: Callable[[Ranges], int], name: str
    ) -> None:
        self.pattern, self.expressions, self.encode, self.name = pattern, expressions, encode, name
        self.at = 0

    def parse(self) -> list[Alternative]:
        if len(self.pattern) > MOST_CHARACTERS:
            self._refuse(f"it has {len(self.pattern):,} characters, and {MOST_CHARACTERS:,} are the most", 0)
        branches = [self._branch()]
        while self._take("|"):
            branches.append(self._branch())
        if self.at < len(self.pattern):
            self._refuse("a parenthesis is closed that was not opened; write \\) for the character")
        return branches

    def _branch(self) -> Alternative:
        before = self._take("^") or self._take("\\A")
        node = self._sequence(0)
        after = self._take("$") or self._take("\\Z")
        if self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            self._refuse("an anchor is allowed at the ends of the pattern alone", self.at - 1)
        return Alternative(node, before, after)

    def _alternatives(self, depth: int) -> int:
        if depth > MOST_NESTED:
            self._refuse(f"more than {MOST_NESTED} groups are nested", self.at - 1)
        nodes = [self._sequence(depth)]
        while self._take("|"):
            nodes.append(self._sequence(depth))
        return self.expressions.union(nodes)

    def _sequence(self, depth: int) -> int:
        nodes = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            if self._is_end_anchor():
                if depth:
                    self._refuse("an anchor is allowed at the ends of the pattern alone")
                break
            nodes.append(self._repeat(self._atom(depth)))
        return self.expressions.join_all(nodes)

    def _is_end_anchor(self) -> bool:
        return self.pattern.startswith(("$", "\\Z"), self.at)

    def _atom(self, depth: int) -> int:
        start, char = self.at, self._next()
        if char == "(":
            self._open_group(start)
            node = self._alternatives(depth + 1)
            if not self._take(")"):
                self._refuse("a parenthesis is not closed; write \\( for the character", start)
            return node
        if char == "[":
            return self.encode(self._set(start))
        if char == ".":
            return self.encode(ANY)
        if char == "\\":
            return self.encode(self._escape(start))
        if char in "*+?" or (char == "{" and _COUNTS.match(self.pattern, start) and self._is_count(start)):
            self._refuse(f"{char!r} has nothing to repeat; write \\{char} for the character", start)
        if char == "^":
            self._refuse("an anchor is allowed at the ends of the pattern alone", start)
        return self.encode(self._single(char, start))

    def _open_group(self, start: int) -> None:
        if not self._take("?") or self._take(":"):
            return
        rest = self.pattern[self.at :]
        for opening, what in GROUPS.items():
            if rest.startswith(opening):
                self._refuse(f"{what}, (?{opening}, is not supported", start)
        named = _NAMED.match(self.pattern, self.at - 1)
        if named is None:
            self._refuse("(? must be followed by : or P<name>; flags are not supported", start)
        self.at = named.end()

    # ---- repetition

    def _is_count(self, at: int) -> bool:
        """Returns whether braces are a count, as {2} or {2,5}; {} and {x} are characters."""
        found = _COUNTS.match(self.pattern, at)
        return found is not None and found[0] != "{}"

    def _repeat(self, node: int) -> int:
        counts = self._counts()
        if counts is None:
            return node
        start = self.at
        if self._take("+"):
            self._refuse("a possessive quantifier is not supported; omit the second +", start)
        self._take("?")  # lazy: the same texts
        node = self.expressions.repeat(node, *counts)
        if self._counts() is not None:
            self._refuse("a repetition is repeated: put the first one into a group, (?:…)", start)
        return node

    def _counts(self) -> tuple[int, float] | None:
        for sign, counts in {"*": (0, math.inf), "+": (1, math.inf), "?": (0, 1)}.items():
            if self._take(sign):
                return counts
        start = self.at
        if not self._is_count(start):
            return None
        found = _COUNTS.match(self.pattern, start)
        assert found is not None
        self.at = found.end()
        first, comma, second = found.groups()
        if max(len(first), len(second or "")) > len(str(MOST_REPEATS)):
            self._refuse(f"a count is larger than {MOST_REPEATS:,}", start)
        least = int(first or 0)
        most = least if comma is None else int(second) if second else math.inf
        if max(least, most if most < math.inf else 0) > MOST_REPEATS:
            self._refuse(f"a count is larger than {MOST_REPEATS:,}", start)
        if most < least:
            self._refuse(f"the least count, {least}, is larger than the most, {most}", start)
        return least, most

    # ---- characters

    def _set(self, start: int) -> Ranges:
        is_negated = self._take("^")
        parts: list[tuple[int, int]] = []
        first = True
        while first or not self._take("]"):
            low = self._set_item(start, first)
            first = False
            if self._peek() == "-" and self.pattern[self.at + 1 : self.at + 2] not in ("]", ""):
                place = self.at
                self.at += 1
                high = self._set_item(start, False)
                if not (_is_single(low) and _is_single(high) and low[0][0] <= high[0][0]):
                    self._refuse("a range goes from a smaller to a larger character, as a-z", place)
                parts.append((low[0][0], high[0][0]))
            else:
                parts += low
        ranges = make_ranges(parts)
        return negate(ranges) if is_negated else ranges

    def _set_item(self, start: int, first: bool) -> Ranges:
        if self.at == len(self.pattern):
            self._refuse("a bracket is not closed; write \\[ for the character", start)
        place, char = self.at, self._next()
        if char == "\\":
            return ((8, 8),) if self._take("b") else self._escape(place)
        if (char == "[" or (char in "-&~|" and self._peek() == char)) and not (char == "-" and first):
            self._refuse(f"write \\{char} for the character {char!r} in a set", place)
        return self._single(char, place)

    def _escape(self, start: int) -> Ranges:
        if self.at == len(self.pattern):
            self._refuse("a backslash ends it; write \\\\ for the character", start)
        char = self._next()
        if char in CLASSES:
            return CLASSES[char]
        if char in HEX:
            digits = self.pattern[self.at : self.at + HEX[char]]
            if not re.fullmatch(f"[0-9a-fA-F]{{{HEX[char]}}}", digits) or int(digits, 16) > LAST:
                self._refuse(f"\\{char} must be followed by {HEX[char]} hexadecimal digits", start)
            self.at += HEX[char]
            return self._single(chr(int(digits, 16)), start)
        if char == "0" and self._peek().isdigit():
            self._refuse("octal escapes are not supported; use \\x00", start)
        if char in ESCAPES:
            return self._single(ESCAPES[char], start)
        if char.isdigit():
            self._refuse("a back-reference is not supported", start)
        if char.isascii() and char.isalpha():
            self._refuse(f"the escape \\{char} is not supported", start)
        return self._single(char, start)

    def _single(self, char: str, start: int) -> Ranges:
        if "\ud800" <= char <= "\udfff":
            self._refuse("half of a surrogate pair is not a character", start)
        return ((ord(char), ord(char)),)

    # ---- the text of the pattern

    def _peek(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def _next(self) -> str:
        self.at += 1
        return self.pattern[self.at - 1]

    def _take(self, text: str) -> bool:
        found = self.pattern.startswith(text, self.at)
        self.at += len(text) * found
        return found

    def _refuse(self, reason: str, at: int | None = None) -> NoReturn:
        place = self.at if at is None else at
        raise UsageError(f"{self.name} cannot be used: {reason} (at character {place}).")


def _is_single(ranges: Ranges) -> bool:
    return len(ranges) == 1 and ranges[0][0] == ranges[0][1]


def search_anywhere(branch: Alternative, expressions: Expressions, anything: int) -> int:
    """Returns the node of the texts in which a branch is found, as `re.search` finds it."""
    before = EMPTY_TEXT if branch.is_anchored_before else anything
    after = EMPTY_TEXT if branch.is_anchored_after else anything
    return expressions.join(before, expressions.join(branch.node, after))

"""The notation of formulas: a syntax tree, parsed from a template and filled with values.

A template is a formula with slots for values: `{y} = e^{0} / Σ_{row} e^{r0}`. `parse` returns its tree, which
`typeset` writes as text, MathML or LaTeX.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Symbol:
    """The symbol of a value or of an index, with its axes: W_Q[c,hd]."""

    text: str
    axes: tuple[str, ...] = ()
    is_gradient: bool = False


@dataclass(frozen=True)
class Literal:
    """A number, as text."""

    text: str


@dataclass(frozen=True)
class Words:
    """Plain words inside a formula."""

    text: str


@dataclass(frozen=True)
class Slot:
    """A place in a template: the result `y`, an input `0` (`0[2]`: last axis at 2), an attribute, `row`."""

    key: str


@dataclass(frozen=True)
class Infix:
    """Operands with the operators between them: a sum, a relation, or a product, where a space and nothing
    multiply as well."""

    operands: tuple["Node", ...]
    operators: tuple[str, ...]


@dataclass(frozen=True)
class Negative:
    """−x."""

    body: "Node"


@dataclass(frozen=True)
class Fraction:
    """numerator / denominator; `is_tight` in text without spaces, 2/π."""

    numerator: "Node"
    denominator: "Node"
    is_tight: bool = False


@dataclass(frozen=True)
class Power:
    """base^exponent; `mark` is the exponent where it is one character, ² or ³."""

    base: "Node"
    exponent: "Node"
    mark: str = ""


@dataclass(frozen=True)
class Root:
    """√body."""

    body: "Node"


@dataclass(frozen=True)
class Group:
    """A part in parentheses."""

    body: "Node"


@dataclass(frozen=True)
class Function:
    """f(a, b), or `f a` without parentheses."""

    name: str
    arguments: tuple["Node", ...]
    is_bare: bool = False


@dataclass(frozen=True)
class Reduction:
    """Σ, mean or max of the body over an index, which may be absent."""

    name: str
    index: "Node | None"
    body: "Node"


@dataclass(frozen=True)
class EvaluatedAt:
    """The body at one place: X at v = y."""

    body: "Node"
    condition: "Node"


@dataclass(frozen=True)
class Piecewise:
    """A value where the condition holds (None: the value's own words say where), and another value else."""

    value: "Node"
    condition: "Node | None"
    otherwise: "Node"


@dataclass(frozen=True)
class Definitions:
    """An equation and the definitions of what it uses: y = Φ(x),  Φ(x) = …"""

    body: "Node"
    definitions: tuple["Node", ...]


Node = (
    Symbol | Literal | Words | Slot | Infix | Negative | Fraction | Power | Root | Group
    | Function | Reduction | EvaluatedAt | Piecewise | Definitions
)  # fmt: skip

# ---- filling a template


def fill(node: Node, values: Mapping[str, Node]) -> Node:
    """Returns the tree with each slot replaced by its value."""
    if isinstance(node, Slot):
        return values[node.key]
    changes = {entry.name: _fill_field(getattr(node, entry.name), values) for entry in fields(node)}
    return replace(node, **changes)


def _fill_field(value: Any, values: Mapping[str, Node]) -> Any:
    if isinstance(value, tuple):
        return tuple(_fill_field(entry, values) for entry in value)
    return fill(value, values) if isinstance(value, Node) else value


def slots(node: Any) -> set[str]:
    """Returns the keys of the slots of a tree."""
    if isinstance(node, Slot):
        return {node.key}
    parts = node if isinstance(node, tuple) else [getattr(node, e.name) for e in fields(node)]
    return set[str]().union(*(slots(part) for part in parts if isinstance(part, Node | tuple)))


# ---- reading


class _Token(NamedTuple):
    kind: str
    text: str
    is_spaced: bool
    """Whether a space stands before it."""


_TOKEN = re.compile(
    r"""(?P<space>\s*)(?:
        (?P<slot>\{[^}]*\})
      | (?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)
      | (?P<reduction>(?:Σ|(?:mean|max)(?=_))_?)
      | (?P<name>[^\W\d_²³]+(?:_\w+)?'*|∞)
      | (?P<mark>[²³])
      | (?P<break>,\ \ )
      | (?P<sign>[-+·/^()=<>≤≥,√])
    )""",
    re.VERBOSE,
)
_FUNCTIONS = {"ln"}
"""Functions that may stand before their argument without parentheses."""
_EXPONENTS = {"²": Literal("2"), "³": Literal("3")}


@lru_cache(4096)
def parse(template: str) -> Node:
    """Returns the tree of a template; a template outside this notation becomes words around its slots."""
    try:
        return _TemplateParser(_tokenize(template)).read()
    except ValueError:
        parts = [part for part in re.split(r"(\{[^}]*\})", template) if part]
        nodes = tuple(Slot(part[1:-1]) if part[0] == "{" else Words(part) for part in parts)
        return Infix(nodes, ("",) * (len(nodes) - 1))


def _tokenize(template: str) -> list[_Token]:
    tokens, at = list[_Token](), 0
    while at < len(template):
        found = _TOKEN.match(template, at)
        if found is None:
            raise ValueError(f"{template[at:]!r} is not part of a formula")
        kind = str(found.lastgroup)
        tokens.append(_Token(kind, found[kind], bool(found["space"])))
        at = found.end()
    return tokens


class _TemplateParser:
    """Recursive descent over the tokens: clauses, relations, sums, products, factors."""

    def __init__(self, tokens: Sequence[_Token]) -> None:
        self.tokens, self.at = tokens, 0

    def read(self) -> Node:
        body, definitions = self._clause(), list[Node]()
        while self._accept("break") or (definitions and self._accept("sign", ",")):
            definitions.append(self._clause())
        if self.at < len(self.tokens):
            raise ValueError("more than a formula")
        return Definitions(body, tuple(definitions)) if definitions else body

    def _peek(self, kind: str, *texts: str) -> _Token | None:
        token = self.tokens[self.at] if self.at < len(self.tokens) else None
        return token if token and token.kind == kind and (not texts or token.text in texts) else None

    def _accept(self, kind: str, *texts: str) -> _Token | None:
        found = self._peek(kind, *texts)
        self.at += found is not None
        return found

    def _expect(self, kind: str, text: str) -> None:
        if not self._accept(kind, text):
            raise ValueError(f"{text!r} is missing")

    def _clause(self) -> Node:
        left = self._sum()
        if not self._accept("sign", "="):
            return left
        value = self._sum()
        condition = self._relation() if self._accept("name", "if") else None
        if self._accept("sign", ","):
            self._expect("name", "else")
            value = Piecewise(value, condition, self._sum())
        return Infix((left, value), ("=",))

    def _relation(self) -> Node:
        left = self._sum()
        sign = self._accept("sign", "=", "<", ">", "≤", "≥")
        return Infix((left, self._sum()), (sign.text,)) if sign else left

    def _sum(self) -> Node:
        terms, signs = [self._term()], list[str]()
        while sign := self._accept("sign", "+", "-"):
            signs.append(sign.text)
            terms.append(self._term())
        return Infix(tuple(terms), tuple(signs)) if signs else terms[0]

    def _term(self) -> Node:
        """A product with quotients, from the left; a minus before it is taken of all of it."""
        if self._accept("sign", "-"):
            return Negative(self._term())
        found = self._product()
        while sign := self._accept("sign", "/"):
            found = Fraction(found, self._factor(), not sign.is_spaced)
            found = self._product(found)
        if self._accept("name", "at"):
            return EvaluatedAt(found, self._relation())
        return found

    def _product(self, first: Node | None = None) -> Node:
        factors, operators = [first or self._factor()], list[str]()
        while (operator := self._multiplication()) is not None:
            operators.append(operator)
            factors.append(self._factor())
        return Infix(tuple(factors), tuple(operators)) if operators else factors[0]

    def _multiplication(self) -> str | None:
        """Returns the sign before the next factor: a dot, a space or nothing; None where none follows."""
        if self._accept("sign", "·"):
            return "·"
        if self.at >= len(self.tokens) or self._peek("name", "if", "else", "at"):
            return None
        token = self.tokens[self.at]
        is_factor = token.kind in ("slot", "number", "reduction", "name") or token.text in ("(", "√")
        return " " * token.is_spaced if is_factor else None

    def _factor(self) -> Node:
        base = self._atom()
        while True:
            if mark := self._accept("mark"):
                base = Power(base, _EXPONENTS[mark.text], mark.text)
            elif self._accept("sign", "^"):
                base = Power(base, self._atom())
            else:
                return base

    def _atom(self) -> Node:
        if self._accept("sign", "("):
            inside = self._sum()
            self._expect("sign", ")")
            return Group(inside)
        if self._accept("sign", "√"):
            return Root(self._atom())
        if token := self._accept("slot"):
            return Slot(token.text[1:-1])
        if token := self._accept("number"):
            return Literal(token.text)
        if token := self._accept("reduction"):
            index = self._index() if token.text.endswith("_") else None
            return Reduction(token.text.rstrip("_"), index, self._product())
        if token := self._accept("name"):
            return self._name(token.text)
        raise ValueError("a number or a name is missing")

    def _index(self) -> Node:
        """Returns the axes of a reduction: axis letters, which may be a slot."""
        if token := self._accept("name"):
            return Symbol(token.text)
        return self._atom()

    def _name(self, name: str) -> Node:
        following = self._peek("sign", "(")
        if following and not following.is_spaced:
            return Function(name, self._arguments())
        if name in _FUNCTIONS:
            return Function(name, (self._product(),), is_bare=True)
        return Words(name) if len(name) > 1 and name.isascii() and name.isalpha() else Symbol(name)

    def _arguments(self) -> tuple[Node, ...]:
        self._expect("sign", "(")
        arguments = [self._sum()]
        while self._accept("sign", ","):
            arguments.append(self._sum())
        self._expect("sign", ")")
        return tuple(arguments)

"""Arithmetic as pieces: texts, and the numbers between them with their names.

A terminal joins the pieces to one line; a page makes a button of each number. The sign of a number is always
in the text before it, so that `a + -b` is written `a - b` wherever it stands.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pellucid.base.formatting import format_number
from pellucid.explanation.expression import Apply, Branch, Cell, Expression, Number, Sum
from pellucid.reference.ops.einsum import format_scale


@dataclass(frozen=True)
class LineNumber:
    """A number in a line, in full; its sign is in the text before it.

    `kind` is "constant", "cell", "total" (a sum that is shown as its total) or "rest" (the sum of the smaller
    terms); `cell` is the named number, `text` what is printed for it where that is not its value."""

    value: float
    kind: str
    cell: Cell | None = None
    text: str = ""

    def format(self, digits: int) -> str:
        """Returns the number without its sign."""
        return self.text or format_number(abs(self.value), digits)


Piece = str | LineNumber
Pieces = tuple[Piece, ...]


class Display(NamedTuple):
    """An expression laid out in two parts: a line, in which its longest sum is a total, and that sum."""

    line: Pieces
    sum: Sum | None


# How tightly each form binds: a part that binds looser than its place needs parentheses.
_CHOICE, _SUM, _PRODUCT, _POWER, _ATOM = range(5)
_PREFIX = {"exp": "e^", "sqrt": "√"}
_INFIX = {"add": (" + ", _SUM), "subtract": (" - ", _SUM), "divide": (" / ", _PRODUCT)}
_FUNCTION_NAMES = {"maximum": "max", "minimum": "min", "log": "ln", "log10": "log₁₀", "rint": "round"}
LONG = 3
"""A sum of this many terms is listed term by term below its line."""


def format_expression(expression: Expression, digits: int = 5) -> str:
    """Returns the arithmetic as typed into a calculator, with this many significant digits."""
    return join_pieces(make_pieces(expression), digits)


def join_pieces(pieces: Sequence[Piece], digits: int = 5) -> str:
    """Returns the pieces as one line of text."""
    return "".join(piece if isinstance(piece, str) else piece.format(digits) for piece in pieces)


def make_pieces(expression: Expression) -> Pieces:
    """Returns the arithmetic as typed into a calculator, in pieces."""
    return _write(expression)[0]


def split_sum(expression: Expression) -> Display:
    """Returns the line of an expression with its outermost long sum as a total, and that sum; the whole line
    and None where it has none."""
    found: list[Sum] = []
    line = make_pieces(_replace_long_sum(expression, found))
    return Display(line, found[0] if found else None)


def _replace_long_sum(expression: Expression, found: list[Sum]) -> Expression:
    """Replaces the first long sum by its total, and keeps it in `found`."""
    if found:
        return expression
    as_sum = _join_additions(expression)
    if as_sum and (as_sum.folded or len(as_sum.terms) >= LONG):
        found.append(as_sum)
        return _Total(as_sum.value)
    match expression:
        case Apply(function, args, value):
            return Apply(function, tuple(_replace_long_sum(arg, found) for arg in args), value)
        case Sum(terms):
            return replace(expression, terms=tuple(_replace_long_sum(term, found) for term in terms))
        case Branch(what):
            return _replace_long_sum(what, found)
    return expression


def _join_additions(expression: Expression) -> Sum | None:
    """Returns a chain of additions, (a + b) + c, as one sum; a sum as it is."""
    if not isinstance(expression, Apply) or expression.function != "add":
        return expression if isinstance(expression, Sum) else None
    terms: list[Expression] = []
    left: Expression = expression
    while isinstance(left, Apply) and left.function == "add":
        left, right = left.args
        terms.append(right)
    return Sum((left, *reversed(terms)), 0.0, 0, expression.value)


@dataclass(frozen=True)
class _Total(Number):
    """The total of a sum that is listed elsewhere."""


def _write(expression: Expression) -> tuple[Pieces, int]:
    """Returns the pieces, and how tightly they bind."""
    match expression:
        case Branch(what):
            return _write(what)
        case Cell(text=text) if text:
            sign = "-" * (text.startswith("-") and len(text) > 1)
            number = LineNumber(expression.value, "cell", expression, text.removeprefix(sign))
            return _join(sign, number), _ATOM if text[0] not in "-−" else _SUM
        case Number(value) | Cell(_, _, value):
            named = expression if isinstance(expression, Cell) else None
            kind = "cell" if named else "total" if isinstance(expression, _Total) else "constant"
            return _write_number(LineNumber(value, kind, named)), _ATOM if value >= 0 else _SUM
        case Apply("choose", (condition, yes, no)):
            parts = (_write(yes)[0], _write(condition)[0], _write(no)[0])
            return _join(*parts[0], " if ", *parts[1], ", else ", *parts[2]), _CHOICE
        case Apply("greater", (left, right)):
            return _join(*_write(left)[0], " > ", *_write(right)[0]), _CHOICE
        case Apply("pow10", (arg,)):
            return _join("10^", *_write_operand(arg, _ATOM)), _POWER
        case Sum(terms, rest, folded):
            written = [_write_operand(term, _PRODUCT, signed=True) for term in terms]
            if folded:
                note = f" [{folded:,} smaller term{'s' * (folded > 1)}]"
                written.append((*_write_number(LineNumber(rest, "rest")), note))
            if not written:
                return ("0",), _ATOM
            return _add(*written), _SUM if len(written) > 1 else _PRODUCT
        case Apply("multiply", (*args, Number(scale))) if args and scale > 0:
            return _join(
                *_write_operand(_multiply(args), _PRODUCT, signed=True), *_write_scale(scale)
            ), _PRODUCT
        case Apply("multiply", (*args, Apply("divide", (Number(1.0), divisor)))) if args:
            return _write(Apply("divide", (_multiply(args), divisor), math.nan))
        case Apply("multiply", args):
            factors = [_write_operand(arg, _PRODUCT, signed=i == 0) for i, arg in enumerate(args)]
            return _separate(" · ", factors), _PRODUCT
        case Apply("negative", (arg,)):
            return _join("-", *_write_operand(arg, _PRODUCT)), _SUM
        case Apply("power", (base, Number(exponent))):
            if exponent == -0.5:
                return _join("1 / √(", *_write(base)[0], ")"), _PRODUCT
            raised = _write_operand(Number(exponent), _ATOM)
            return _join(*_write_operand(base, _ATOM), "^", *raised), _POWER
        case Apply(function, (left, right)) if function in _INFIX:
            sign, level = _INFIX[function]
            first = _write_operand(left, level, signed=True)
            second = _write_operand(right, level + 1, signed=function == "add")
            if function == "add":
                return _add(first, second), level
            if _starts_negative(second):
                second = _join("(", *second, ")")
            return _join(*first, sign, *second), level
        case Apply(function, (arg,)) if function in _PREFIX:
            return _join(_PREFIX[function], *_write_operand(arg, _ATOM)), _POWER
        case Apply(function, args):
            listed = _separate(", ", [_write(arg)[0] for arg in args])
            return _join(f"{_FUNCTION_NAMES.get(function, function)}(", *listed, ")"), _ATOM


def _multiply(factors: list[Expression]) -> Expression:
    return factors[0] if len(factors) == 1 else Apply("multiply", tuple(factors), math.nan)


def _write_operand(expression: Expression, needs: int, signed: bool = False) -> Pieces:
    """Returns an operand, in parentheses where it needs them; a leading minus needs none where `signed`."""
    pieces, binds = _write(expression)
    if signed and _starts_negative(pieces) and isinstance(expression, Number | Cell):
        return pieces
    return pieces if binds >= needs else _join("(", *pieces, ")")


def _write_number(number: LineNumber) -> Pieces:
    return _join("-" * (number.value < 0), number)


def _write_scale(scale: float) -> Pieces:
    """Returns a positive factor: a constant, or a text where it is / 4 or / √2."""
    text = format_scale(scale)
    is_constant = text.startswith(" · ") and math.isfinite(scale)
    return (" · ", LineNumber(scale, "constant")) if is_constant else (text,)


def _starts_negative(pieces: Pieces) -> bool:
    return bool(pieces) and isinstance(pieces[0], str) and pieces[0].startswith("-")


def _add(*terms: Pieces) -> Pieces:
    """Joins terms with +, and with − those that begin with a minus."""
    return tuple(
        piece.replace(" + -", " - ") if isinstance(piece, str) else piece for piece in _separate(" + ", terms)
    )


def _separate(separator: str, parts: Sequence[Pieces]) -> Pieces:
    return _join(*(piece for i, part in enumerate(parts) for piece in ((separator,) * (i > 0) + part)))


def _join(*pieces: Piece) -> Pieces:
    """Joins texts that follow each other, and drops empty ones."""
    joined: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and joined and isinstance(joined[-1], str):
            joined[-1] += piece
        elif piece != "":
            joined.append(piece)
    return tuple(joined)

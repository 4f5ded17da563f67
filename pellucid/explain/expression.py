"""The arithmetic of one number: an expression tree that can be printed and recomputed."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from pellucid.format import format_number
from pellucid.reference.op import Index
from pellucid.reference.ops.einsum import format_scale


@dataclass(frozen=True)
class Number:
    """A constant of the formula."""

    value: float


@dataclass(frozen=True)
class Cell:
    """A number that has a name: one cell of a value on the tape; `text` is what is printed for it, where that
    is not its value."""

    name: str
    index: Index
    value: float
    text: str = ""


@dataclass(frozen=True)
class Apply:
    """A function of one or more numbers, by the name of NumPy's ufunc."""

    function: str
    args: tuple["Expression", ...]
    value: float


@dataclass(frozen=True)
class Sum:
    """A sum; where it is long, its largest terms and the exact sum of the `folded` others."""

    terms: tuple["Expression", ...]
    rest: float
    folded: int
    value: float


@dataclass(frozen=True)
class Branch:
    """One of two numbers, and the condition that chose it: U > 0, or mask = 1. `other` is the number that was
    not chosen."""

    what: "Expression"
    condition: "Expression"
    value: float
    other: "Expression"


Expression = Number | Cell | Apply | Sum | Branch

FUNCTIONS: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda *factors: math.prod(factors),
    "divide": lambda a, b: a / b,
    "power": lambda a, b: a**b,
    "negative": lambda a: -a,
    "maximum": max,
    "minimum": min,
    "max": lambda *numbers: max(numbers),
    "exp": lambda a: float(np.exp(a)),
    "log": math.log,
    "sqrt": math.sqrt,
    "tanh": math.tanh,
    "cos": math.cos,
    "sin": math.sin,
    "erf": math.erf,
}


def compute(expression: Expression) -> float:
    """Returns the number, recomputed from the operands alone."""
    match expression:
        case Apply(function, args):
            return float(FUNCTIONS[function](*map(compute, args)))
        case Sum(terms, rest):
            return math.fsum(map(compute, terms)) + rest
        case Branch(what):
            return compute(what)
        case Number(value) | Cell(_, _, value):
            return value


def find_operands(expression: Expression, weight: float = math.inf) -> Iterator[tuple[Cell, float]]:
    """Yields every named number with the magnitude of its term; outside any sum that is infinite."""
    match expression:
        case Cell():
            yield expression, weight
        case Apply(_, args):
            for arg in args:
                yield from find_operands(arg, weight)
        case Sum(terms):
            for term in terms:
                yield from find_operands(term, min(weight, abs(term.value)))
        case Branch(what, condition):
            yield from find_operands(what, weight)
            yield from find_operands(condition, 0.0)


# How tightly each form binds: a part that binds looser than its place needs parentheses.
_CHOICE, _SUM, _PRODUCT, _POWER, _ATOM = range(5)
_PREFIX = {"exp": "e^", "sqrt": "√"}
_INFIX = {"add": (" + ", _SUM), "subtract": (" - ", _SUM), "divide": (" / ", _PRODUCT)}


def format_expression(expression: Expression, digits: int = 5) -> str:
    """Returns the arithmetic as typed into a calculator, with this many significant digits."""
    return _format(expression, digits)[0]


def _format(expression: Expression, digits: int) -> tuple[str, int]:
    match expression:
        case Branch(what):
            return _format(what, digits)
        case Cell(text=text) if text:
            return text, _ATOM if text[0] not in "-−" else _SUM
        case Number(value) | Cell(_, _, value):
            return format_number(value, digits), _ATOM if value >= 0 else _SUM
        case Apply("choose", (condition, yes, no)):
            then, holds, otherwise = (_format(part, digits)[0] for part in (yes, condition, no))
            return f"{then} if {holds}, else {otherwise}", _CHOICE
        case Apply("greater", (left, right)):
            return f"{_format(left, digits)[0]} > {_format(right, digits)[0]}", _CHOICE
        case Apply("pow10", (arg,)):
            return f"10^{_format_operand(arg, _ATOM, digits)}", _POWER
        case Sum(terms, rest, folded):
            parts = [_format_operand(term, _PRODUCT, digits, signed=True) for term in terms]
            if folded:
                parts.append(f"{format_number(rest, digits)} [{folded:,} smaller term{'s' * (folded > 1)}]")
            if not parts:
                return "0", _ATOM
            return " + ".join(parts).replace(" + -", " - "), _SUM if len(parts) > 1 else _PRODUCT
        case Apply("multiply", (*args, Number(scale))) if args and scale > 0:
            text = _format_operand(_multiply(args), _PRODUCT, digits, signed=True)
            return text + format_scale(scale, digits), _PRODUCT
        case Apply("multiply", (*args, Apply("divide", (Number(1.0), divisor)))) if args:
            return _format(Apply("divide", (_multiply(args), divisor), math.nan), digits)
        case Apply("multiply", args):
            text = " · ".join(
                _format_operand(arg, _PRODUCT, digits, signed=i == 0) for i, arg in enumerate(args)
            )
            return text, _PRODUCT
        case Apply("negative", (arg,)):
            return f"-{_format_operand(arg, _PRODUCT, digits)}", _SUM
        case Apply("power", (base, Number(exponent))):
            if exponent == -0.5:
                return f"1 / √({_format(base, digits)[0]})", _PRODUCT
            return (
                f"{_format_operand(base, _ATOM, digits)}^{_format_operand(Number(exponent), _ATOM, digits)}",
                _POWER,
            )
        case Apply(function, (left, right)) if function in _INFIX:
            sign, level = _INFIX[function]
            text = _format_operand(right, level + 1, digits, signed=function == "add")
            if function != "add" and text.startswith("-"):
                text = f"({text})"
            text = (_format_operand(left, level, digits, signed=True) + sign + text).replace(" + -", " - ")
            return text, level
        case Apply(function, (arg,)) if function in _PREFIX:
            return _PREFIX[function] + _format_operand(arg, _ATOM, digits), _POWER
        case Apply(function, args):
            name = {"maximum": "max", "minimum": "min", "log": "ln", "log10": "log₁₀"}.get(function, function)
            return f"{name}({', '.join(_format(arg, digits)[0] for arg in args)})", _ATOM


def _multiply(factors: list[Expression]) -> Expression:
    return factors[0] if len(factors) == 1 else Apply("multiply", tuple(factors), math.nan)


def _format_operand(expression: Expression, needs: int, digits: int, signed: bool = False) -> str:
    """Returns an operand, in parentheses where it needs them; a leading minus needs none where `signed`."""
    text, binds = _format(expression, digits)
    if signed and text.startswith("-") and isinstance(expression, Number | Cell):
        return text
    return text if binds >= needs else f"({text})"

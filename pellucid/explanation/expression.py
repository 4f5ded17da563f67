"""The arithmetic of one number: an expression tree that can be recomputed, and written by `pieces.py`."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from pellucid.reference.op import Index


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
    "rint": lambda a: float(np.rint(a)),
    "float32": lambda a: float(np.float32(a)),
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

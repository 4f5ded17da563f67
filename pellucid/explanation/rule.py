"""A rule: the arithmetic of one number over keys, so that it can be run again on other numbers.

An expression (`expression.py`) holds the cells of one run; its rule holds their keys. A rule is a number, a
key, or a call of one of `FUNCTIONS`:

    0.5    "probs[t=1,v=2]"    RuleCall("multiply", ("Q[1,0]", "K[0,0]", 0.7071))

`+` is a sum of any length, and `rest` marks the key of a folded remainder: the exact sum of its other terms.
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeGuard

from pellucid.explanation.expression import FUNCTIONS as ARITHMETIC
from pellucid.explanation.expression import Apply, Cell, Expression, Number, Sum
from pellucid.explanation.pieces import format_expression

_LARGEST_EXPONENT = math.log(sys.float_info.max)
"""Above it NumPy warns that e^x overflows; a number from a sheet file may be of any size."""
FUNCTIONS: dict[str, Callable[..., float]] = {
    **ARITHMETIC,
    "exp": lambda a: math.inf if a > _LARGEST_EXPONENT else ARITHMETIC["exp"](a),
    "+": lambda *terms: math.fsum(terms),
    "rest": lambda value: value,
    "greater": lambda a, b: float(a > b),
    "choose": lambda condition, yes, no: yes if condition else no,
    "log10": math.log10,
    "pow10": lambda a: 10.0**a,
}
ARITY: dict[str, tuple[int, int | None]] = {
    **dict.fromkeys(("add", "subtract", "divide", "power", "maximum", "minimum", "greater"), (2, 2)),
    **dict.fromkeys(
        ("negative", "exp", "log", "sqrt", "tanh", "cos", "sin", "erf", "rest", "log10", "pow10"), (1, 1)
    ),
    **dict.fromkeys(("rint", "float32"), (1, 1)),
    **dict.fromkeys(("multiply", "max", "+"), (1, None)),
    "choose": (3, 3),
}
"""The least and largest number of arguments of each function; None: any number."""


class RuleCall(NamedTuple):
    """A function of `FUNCTIONS`, applied to rules."""

    function: str
    args: tuple["Rule", ...]


Rule = float | str | RuleCall


def is_call(rule: Rule, *functions: str) -> TypeGuard[RuleCall]:
    """Tests whether a rule is a call, of one of these functions where some are given."""
    return isinstance(rule, RuleCall) and (not functions or rule.function in functions)


def compute(rule: Rule, values: Mapping[str, float]) -> float:
    """Returns the number that a rule gives on these values; NaN where it has none (ln −1, 1 / 0).

    >>> compute(RuleCall("+", ("a", RuleCall("multiply", ("b", 2.0)))), {"a": 1.0, "b": 3.0})
    7.0
    """
    try:
        return _compute(rule, values)
    except (ArithmeticError, ValueError):
        return math.nan


def _compute(rule: Rule, values: Mapping[str, float]) -> float:
    if isinstance(rule, str):
        return values[rule]
    if not isinstance(rule, RuleCall):
        return rule
    if rule.function == "choose":  # the other branch may have no value
        condition, yes, no = rule.args
        return _compute(yes if _compute(condition, values) else no, values)
    result = FUNCTIONS[rule.function](*(_compute(arg, values) for arg in rule.args))
    return float(result) if isinstance(result, int | float) else math.nan  # (−8) ** ⅓ is complex


def find_keys(rule: Rule) -> Iterator[str]:
    """Yields every key that a rule reads, as often as it stands there."""
    if isinstance(rule, str):
        yield rule
    elif isinstance(rule, RuleCall):
        for arg in rule.args:
            yield from find_keys(arg)


def walk(rule: Rule) -> Iterator[Rule]:
    """Yields a rule and all its parts, the whole first."""
    yield rule
    if isinstance(rule, RuleCall):
        for arg in rule.args:
            yield from walk(arg)


def transform(rule: Rule, change: Callable[[Rule], Rule]) -> Rule:
    """Returns the rule with every part replaced by `change(part)`, the innermost first."""
    if isinstance(rule, RuleCall):
        rule = RuleCall(rule.function, tuple(transform(arg, change) for arg in rule.args))
    return change(rule)


def simplify(rule: Rule) -> Rule:
    """Returns an equal rule without terms of constant 0, factors of constant 0 or 1, and quotients of equals:
    what a mask of 0 and 1, or a gradient of 0, leaves of a formula."""
    return transform(rule, _simplify)


def _simplify(rule: Rule) -> Rule:
    if not isinstance(rule, RuleCall):
        return rule
    function, args = rule
    if function in ("max", "maximum"):
        largest = tuple(arg for arg in args if arg != -math.inf)
        if len(largest) < 2:
            return largest[0] if largest else -math.inf
        return RuleCall(function if len(largest) == len(args) else "max", largest)
    if function in ("+", "add", "subtract") and args[:1] == (-math.inf,):
        return -math.inf
    if function in ("+", "add"):
        terms = tuple(arg for arg in args if arg != 0.0)
        if len(terms) < 2:
            return terms[0] if terms else 0.0
        return RuleCall(function if len(terms) == len(args) else "+", terms)
    if function == "multiply":
        if 0.0 in args:
            return 0.0
        factors = tuple(arg for arg in args if arg != 1.0)
        if len(factors) < 2:
            return factors[0] if factors else 1.0
        return RuleCall(function, factors)
    if function == "negative" and isinstance(args[0], float):
        return -args[0] + 0.0
    if function == "divide" and args[0] == args[1]:
        return 1.0
    if function == "divide" and (args[1] == 1.0 or args[0] == 0.0):
        return args[0]
    if function == "choose" and args[1] == args[2]:
        return args[1]
    if function == "exp" and args[0] == -math.inf:
        return 0.0
    if function == "subtract" and args[1] == 0.0:
        return args[0]
    return rule


# ---- as text


def to_expression(rule: Rule, text: Callable[[str], str]) -> Expression:
    """Returns the expression that prints a rule: `text(key)` stands for a key."""
    match rule:
        case str(key):
            return Cell(key, (), math.nan, text(key))
        case RuleCall("rest", (str(key),)):
            return Cell(key, (), math.nan, text(key))
        case RuleCall("+", terms):
            return Sum(tuple(to_expression(term, text) for term in terms), 0.0, 0, math.nan)
        case RuleCall(function, args):
            return Apply(function, tuple(to_expression(arg, text) for arg in args), math.nan)
        case float(value):
            return Number(value)
    raise TypeError(f"{rule!r} is not a rule")


def format_rule(rule: Rule, text: Callable[[str], str], digits: int = 5) -> str:
    """Returns the arithmetic of a rule as typed into a calculator; `text(key)` stands for a key: its symbol,
    or its number.

    >>> format_rule(RuleCall("divide", (RuleCall("exp", ("S",)), RuleCall("+", ("E", "F")))), str.lower)
    'e^s / (e + f)'
    """
    return format_expression(to_expression(rule, text), digits)

"""The rule of any expression over the cells of a trace, as a sheet that prints every number has it."""

from collections.abc import Callable

import numpy as np

from pellucid.explanation.derive import record_arithmetic
from pellucid.explanation.expression import Apply, Branch, Cell, Expression, Number, Sum
from pellucid.explanation.rule import Rule, RuleCall, simplify
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Index

MOST_TERMS = 1000


def make_translate(trace: Trace) -> Callable[[Expression], Rule | None]:
    """Returns the translation of expressions to rules, in which a condition is decided as in the run."""

    def translate(expression: Expression) -> Rule:
        match expression:
            case Number(value):
                return float(value)
            case Cell(name, index, _):
                return trace.address(name, index)
            case Sum(terms):
                return RuleCall("+", tuple(map(translate, terms)))
            case Apply(function, args):
                return RuleCall(function, tuple(map(translate, args)))
            case Branch(what):
                return translate(what)

    return translate


def list_values(trace: Trace) -> dict[str, float]:
    """Returns every number of a trace by its address."""
    return {
        trace.address(name, index): float(value)
        for name, array in trace.tape.values.items()
        for index, value in np.ndenumerate(array)
    }


def make_rule(trace: Trace, name: str, index: Index) -> Rule:
    """Returns the right rule of a cell."""
    rule = make_translate(trace)(record_arithmetic(trace, trace.tape.steps[name], index, MOST_TERMS))
    assert rule is not None
    return simplify(rule)

"""Chains of additions as one sum: the residual stream is the sum of everything that was written to it.

An operand of an `add` that is itself an `add` is replaced by its operands, for values and gradients alike;
any other operation, such as a norm between two additions, ends the chain.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pellucid.explanation.cell_arrays import Terms, Top, fold_sum
from pellucid.explanation.expression import Cell, Expression, Sum
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Index, same_cell
from pellucid.reference.ops.arithmetic import add
from pellucid.reference.tape import Step, Tape

MOST_TERMS = 10_000
"""Terms of a flattened sum, about: each x + x of a chain doubles them."""


def can_flatten(tape: Tape, step: Step) -> bool:
    """Returns whether an operand of this addition is itself an addition."""
    return step.op is add and any(_is_addition(tape, name) for name in step.inputs)


def _is_addition(tape: Tape, name: str) -> bool:
    return name in tape.steps and tape.steps[name].op is add


def find_terms(trace: Trace, step: Step, index: Index) -> tuple[Cell, ...]:
    """Returns the cells that a cell of an addition is the sum of, in the order of the run; beyond
    `MOST_TERMS`, an addition is a term itself."""
    terms: list[Cell] = []
    todo = [(step.name, index)]
    while todo:
        name, at = todo.pop()
        if _is_addition(trace.tape, name) and len(terms) + len(todo) < MOST_TERMS:
            inputs = trace.tape.steps[name].inputs
            cells = [tuple(int(i[0]) for i in same_cell(at, trace.value(read).shape)) for read in inputs]
            todo += reversed(list(zip(inputs, cells, strict=True)))
        else:
            terms.append(Cell(name, at, float(trace.value(name)[at])))
    return tuple(terms)


def fold_terms(terms: Sequence[Cell], total: float, top: Top) -> Expression:
    """Returns the sum of cells, of which the `top` largest are shown; its total is the recorded number."""
    values = np.array([term.value for term in terms])
    found = fold_sum(Terms(values, lambda i, top: terms[i]), top)
    return replace(found, value=total) if isinstance(found, Sum) else found

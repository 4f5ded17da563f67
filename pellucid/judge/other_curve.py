"""Which curve is this? Two functions of one number, told apart below the noise of the type.

In bfloat16 the two forms of GELU differ by less than 1 + tanh may lose, so no error budget sees a swap. But
where the forms are several roundings apart, a library's one rounding at the end tells which of them it was.
"""

import inspect
from typing import Any

import numpy as np

from pellucid.judge.rounding import PRECISIONS, Bounded, Precision
from pellucid.reference.op import Array, Op, each
from pellucid.reference.ops import table
from pellucid.reference.tape import Step

TELLING = 8
"""Two functions are told apart where they are so many roundings apart, in at least so many cells."""
SAMPLE = 2**16
"""How many cells are enough."""


def other_curve(step: Step, inputs: list[Any], got: Array, precision: Precision) -> tuple[str, int]:
    """Another operation whose numbers these are ("" for none), and the number of the cell that shows it."""
    if not is_curve(step.op) or step.attrs:
        return "", 0
    every = max(1, got.size // SAMPLE)
    x, got = Bounded(inputs[0].value.ravel()[::every]), got.ravel()[::every]
    with np.errstate(all="ignore"):
        own = step.op.forward(x).value
        for name, other in table().items():
            if other is step.op or not is_curve(other):
                continue
            made = other.forward(x)
            inside = made.allowed * PRECISIONS["float32"].unit * made.bulk  # libraries compute in float32
            one = precision.unit * np.maximum(np.abs(made.value), precision.smallest) + inside
            apart, close = np.abs(own - made.value) / one, np.abs(got - made.value) <= one
            telling = apart > TELLING
            if telling.sum() >= TELLING and close[telling].mean() > 0.9:
                return name, every * int(np.where(close & telling, apart, 0).argmax())
    return "", 0


def is_curve(op: Op) -> bool:
    """Whether the operation is a function of one number, cell by cell, and of nothing else."""
    parameters = list(inspect.signature(op.forward).parameters.values())
    return (
        op.reads is each
        and len(parameters) == 1
        and parameters[0].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    )

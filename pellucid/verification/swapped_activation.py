"""Finds a swapped activation whose error is within the noise of the type.

In bfloat16 the two forms of GELU differ by less than rounding may change 1 + tanh, so no error budget shows a
swap. But a library rounds once, at the end: in the cells where the two forms are several roundings apart, its
numbers show which of them it computed.
"""

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from pellucid.base.dtypes import Dtype
from pellucid.reference.op import Array, Op, each
from pellucid.reference.ops import table
from pellucid.reference.tape import Step
from pellucid.verification.rounding import SINGLE, Bounded

DISTINCT = 8
"""Two functions are distinguished by at least this many cells where they are this many roundings apart."""
SAMPLE = 2**16
"""How many cells are examined at most."""


def find_swapped_activation(step: Step, inputs: Sequence[Any], got: Array, dtype: Dtype) -> tuple[str, int]:
    """Returns the other operation that gives these numbers ("" for none), and the flat index of a cell that
    shows it."""
    if not is_elementwise(step.op) or step.attrs:
        return "", 0
    stride = max(1, got.size // SAMPLE)
    x, got = Bounded(inputs[0].value.ravel()[::stride]), got.ravel()[::stride]
    with np.errstate(all="ignore"):
        own = step.op.forward(x).value
        for name, other in table().items():
            if other is step.op or not is_elementwise(other):
                continue
            value = other.forward(x)
            inside = value.allowed * SINGLE.roundoff * value.terms  # libraries compute in float32
            one = dtype.roundoff * np.maximum(np.abs(value.value), dtype.smallest_normal) + inside
            apart, close = np.abs(own - value.value) / one, np.abs(got - value.value) <= one
            is_distinct = apart > DISTINCT
            if is_distinct.sum() >= DISTINCT and close[is_distinct].mean() > 0.9:
                return name, stride * int(np.where(close & is_distinct, apart, 0).argmax())
    return "", 0


def is_elementwise(op: Op) -> bool:
    """Returns whether the operation is a function of one number, applied elementwise, without settings."""
    parameters = list(inspect.signature(op.forward).parameters.values())
    return (
        op.reads is each
        and len(parameters) == 1
        and parameters[0].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    )

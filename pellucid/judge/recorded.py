"""The values that another program recorded: widened to float64, with the type in which they were held."""

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from pellucid.dtypes import BY_NAME, FLOAT_NAMES, Dtype
from pellucid.errors import UsageError, unknown
from pellucid.explain.trace import Trace
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape


class RecordedValue(NamedTuple):
    """A value in float64 (or int64), and the type in which the program held it."""

    value: Array
    type: str = "float64"

    @property
    def dtype(self) -> Dtype:
        """The float type; whole numbers are exact, and so is float64."""
        return BY_NAME[self.type if self.type in FLOAT_NAMES else "float64"]


Recording = Mapping[str, RecordedValue]
"""Recorded values by the names of the specification."""


def recorded_values(trace: Trace) -> dict[str, RecordedValue]:
    """Returns the values of a trace, each with the type in which it was held.

    Of a run of the fast engine these are the values that it computed and the parameters that it read.
    """
    types, values = trace.run.get("types"), trace.tape.values
    if not isinstance(types, dict):
        return {name: RecordedValue(value, value.dtype.name) for name, value in values.items()}
    given = {name: str(trace.run.get("dtype")) for name, role in trace.tape.roles.items() if role == "param"}
    return {
        name: RecordedValue(values[name], str(type))
        for name, type in (given | types).items()
        if name in values
    }


def check_recorded(
    tape: Tape, recorded: Mapping[str, RecordedValue | tuple[Array, str]]
) -> dict[str, RecordedValue]:
    """Returns the recorded values; raises where a shape or a type is not the program's."""
    checked = {}
    for name, (given, type) in recorded.items():
        ours, value = tape[name], np.asarray(given)
        if value.shape != ours.shape:
            raise UsageError(f"{name} has the shape {value.shape} there, and {ours.shape} here.")
        if ours.dtype.kind in "iu":
            if not np.array_equal(value, np.rint(value)):
                raise UsageError(f"{name} must be whole numbers; theirs are not.")
            checked[name] = RecordedValue(value.astype(np.int64), "int64")
            continue
        if type not in FLOAT_NAMES and not re.fullmatch(r"bool|u?int\d+", type):
            raise UsageError(unknown("the type of a value", type, FLOAT_NAMES))
        checked[name] = RecordedValue(value.astype(np.float64), type)
    return checked

"""Edits: the numbers that a reader gave, as changed weights and as steps of the run."""

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pellucid.base.errors import UsageError
from pellucid.explanation.address import parse_cell
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Index
from pellucid.reference.ops.indexing import find_place, put

MOST_EDITS = 1000
"""The largest number of edits of one trace."""
FINISHED = "a trace is a finished run: open its model to edit a number."
_COMPUTED = re.compile(r"(?P<base>.+)\.(computed|backpropagated)(?P<update>@\d+)?")


@dataclass(frozen=True)
class CellEdit:
    """A number that the reader gave: the cell of a parameter or of a step."""

    name: str
    index: Index
    value: float


def read_edit(trace: Trace, at: str, value: float) -> CellEdit:
    """Returns the edit of the cell at an address; raises where the cell cannot be edited."""
    name, index = parse_cell(trace, at)
    if reason := find_obstacle(trace, name):
        raise UsageError(reason)
    if name.partition("@")[0].endswith("mask") and value not in (0, 1):
        raise UsageError(f"{name} is 1 where a query may attend to a key, else 0: give one of them.")
    return CellEdit(name, index, value)


def find_obstacle(trace: Trace, name: str) -> str | None:
    """Returns why the cells of a value cannot be edited; None where they can."""
    if trace.value(name).dtype.kind != "f" and trace.tape.roles[name] == "param":
        return f"{name} holds the integers of a quantized weight: edit the weight instead."
    if trace.value(name).dtype.kind != "f":
        return f"{name} holds whole numbers, which select rows: run another prompt instead."
    if edited := get_edited(trace, name):
        return f"{name} is what the formula of {edited} gives: edit {edited} instead."
    if name.startswith("d.") and (edited := get_edited(trace, name.removeprefix("d."))):
        return f"{name} exists only while {edited} is edited: edit d.{edited} instead."
    return None


def get_edited(trace: Trace, name: str) -> str | None:
    """Returns the edited value of which this is what the formula gives: X for X.computed."""
    found = _COMPUTED.fullmatch(name)
    edited = found["base"] + (found["update"] or "") if found else ""
    step = trace.tape.steps.get(edited)
    return edited if step and step.op is put and step.inputs == (name,) else None


def find_computed(trace: Trace, name: str) -> str | None:
    """Returns the name of what the formula of an edited value gives; None where no cell of it was edited."""
    step = trace.tape.steps.get(name)
    computed = step.inputs[0] if step and step.op is put else ""
    return computed if computed and get_edited(trace, computed) == name else None


def group_edits(trace: Trace, edits: Iterable[CellEdit]) -> dict[str, dict[int, float]]:
    """Returns the numbers by name and by place in storage order; the last one given for a cell counts."""
    grouped: dict[str, dict[int, float]] = {}
    for edit in edits:
        place = find_place(edit.index, trace.value(edit.name).shape)
        grouped.setdefault(edit.name, {})[place] = edit.value
    return grouped


def describe_edits(trace: Trace, edits: Iterable[CellEdit]) -> list[dict[str, Any]]:
    """Returns the edits as a trace's record of its run has them, in the order in which they were made."""
    return [{"at": trace.address(edit.name, edit.index), "value": edit.value} for edit in edits]


def read_described_edits(trace: Trace) -> list[dict[str, Any]]:
    """Returns the edits of a trace's record, those alone that are an address and a finite number: the record
    of a file from elsewhere may hold anything."""
    edits = trace.run.get("edits")
    return [
        {"at": edit["at"], "value": edit["value"]}
        for edit in (edits[:MOST_EDITS] if isinstance(edits, list) else ())
        if isinstance(edit, dict)
        and isinstance(edit.get("at"), str)
        and type(edit.get("value")) in (int, float)
        and abs(edit["value"]) <= sys.float_info.max
    ]

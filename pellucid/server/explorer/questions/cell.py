"""`cell`: one number with its formula, its arithmetic, where it stands, and what it was computed from."""

import re
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np

from pellucid.base.formatting import format_number
from pellucid.base.names import LETTERS
from pellucid.base.schema import Range
from pellucid.explanation.cell_arrays import can_flatten
from pellucid.explanation.derive import Derivation, derive
from pellucid.explanation.expression import find_operands
from pellucid.explanation.reuse import has_same_bits
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Array, Box, Index
from pellucid.reference.ops.indexing import find_place, take
from pellucid.reference.ops.losses import cross_entropy
from pellucid.reference.ops.rotate import rotate
from pellucid.server.explorer.arithmetic import describe_arithmetic, show_label
from pellucid.server.explorer.editing import FINISHED, find_computed, find_obstacle
from pellucid.server.explorer.held_trace import HeldTrace
from pellucid.server.explorer.session import Session
from pellucid.server.explorer.window import COLS, ROWS, TableWindow, find_window

MOST_READS = 6
"""Windows of inputs in one answer."""
MOST_PARTS = 4
"""Separate parts of one input that are marked each; more are marked together."""
DIGITS = 6
"""Significant digits to which an arithmetic must give the recorded number without a note."""
SELECTING = (take, rotate, cross_entropy)
"""Operations of which a cell is computed from a few cells of the row that they are given."""
_GRADIENT = re.compile(r"d\.(?P<of>.+?)(?:\.via\..+?)?(?:\.clipped)?(?P<update>@\d+)?")


def answer(
    session: Session,
    trace: HeldTrace,
    at: str,
    top: Annotated[int, Range(1, 128)] = 6,
    flatten: bool = False,
    rows: Annotated[int, Range(1, 32)] = ROWS,
    cols: Annotated[int, Range(1, 32)] = COLS,
) -> dict[str, Any]:
    """Returns a number, its formula and its arithmetic with the `top` largest terms of a long sum; with
    `flatten`, a chain of additions as one sum. Windows, of `rows` × `cols`, show where the number stands and
    which cells it reads; `operands` are the cells that it was computed from, one of each value followed."""
    found = trace.trace
    node = derive(found, at, depth=0, top=top, most=None, flatten=flatten)
    name, index, step = node.name, node.index, node.step
    about, formula = found.about(name), node.formula
    stands = find_window(found, name, index, rows, cols)
    edited = _find_edit(node)
    why_not = FINISHED if trace.request is None else find_obstacle(found, name)
    return {
        "at": node.address,
        "name": name,
        "value": node.value,
        "symbol": about.symbol,
        "meaning": about.meaning,
        "role": found.tape.roles[name],
        "op": step.op.name if step else None,
        "phase": step.phase if step else None,
        **_find_steps(found, name),
        "places": _describe_places(found, name, index),
        "token": _find_token(found, node),
        "formula": formula and str(formula),
        "math": formula and formula.to_mathml_tree(),
        **describe_arithmetic(node),
        "stands": {"window": stands.address, "focus": stands.find_place(index)},
        "reads": [] if edited else _list_reads(node, rows, cols),  # a given number reads none
        "operands": [_describe_operand(operand) for operand in node.operands],
        "twin": _find_twin(found, name, index),
        "can_flatten": step is not None and can_flatten(found.tape, step),
        "is_flattened": node.is_flattened,
        "note": _make_note(node),
        "edited": edited,
        "original": _find_original(session, trace, name, index),
        "can_edit": why_not is None,
        "why_not": why_not,
    }


def _find_steps(trace: Trace, name: str) -> dict[str, Any]:
    """Returns the number of a step and of all steps, and the first cells of the steps before and after it."""
    names = list(trace.tape.steps)
    if name not in trace.tape.steps:
        return {"step": None, "previous": None, "following": None}
    i = names.index(name)
    return {
        "step": [i, len(names)],
        "previous": _find_first(trace, names[i - 1]) if i else None,
        "following": _find_first(trace, names[i + 1]) if i + 1 < len(names) else None,
    }


def _find_first(trace: Trace, name: str) -> str | None:
    """Returns the address of a value's first cell; None where it has no cells."""
    value = trace.value(name)
    return trace.address(name, (0,) * value.ndim) if value.size else None


def _describe_places(trace: Trace, name: str, index: Index, is_brief: bool = False) -> list[dict[str, Any]]:
    """Returns the index and the token on each axis, and unless `is_brief` what the axis is."""
    return [
        {
            "axis": axis,
            "i": i,
            "size": trace.size(name, axis),
            "label": show_label(trace, name, axis, i, index),
        }
        | ({} if is_brief else {"about": LETTERS.get(axis)})
        for axis, i in trace.places(name, index)
    ]


def _find_token(trace: Trace, node: Derivation) -> str | None:
    """Returns the token that a token id or a target is; None for other numbers."""
    vocabulary = trace.labels.get("v", [])
    is_id = node.name.partition("@")[0] in ("ids", "targets") and 0 <= node.value < len(vocabulary)
    return show_label(trace, node.name, "v", int(node.value)) if is_id else None


def _describe_operand(node: Derivation) -> dict[str, Any]:
    trace, about = node.trace, node.trace.about(node.name)
    return {
        "at": node.address,
        "value": node.value,
        "meaning": about.meaning,
        "symbol": about.symbol,
        "role": trace.tape.roles[node.name],
        "places": _describe_places(trace, node.name, node.index, is_brief=True),
        "opens": True,
        "others": [{"at": trace.address(cell.name, cell.index), "value": cell.value} for cell in node.others],
    }


# ---- what it reads


def _list_reads(node: Derivation, rows: int, cols: int) -> list[dict[str, Any]]:
    """Returns a window of each part that the cell reads, with marks around what it reads there."""
    numbers = {operand.name: i for i, operand in enumerate(node.operands)}
    entries: dict[str, dict[str, Any]] = {}
    for name, box in _find_boxes(node):
        followed = node.operands[numbers[name]].index if name in numbers else None
        focus = followed if followed and _is_inside(followed, box) else tuple(int(i[0]) for i in box)
        for window, marks in _mark_parts(node.trace, name, box, focus, rows, cols):
            about = node.trace.about(name)
            place = None if followed is None else window.find_place(followed)
            if place and not (marks[0] <= place[0] <= marks[1] and marks[2] <= place[1] <= marks[3]):
                place = None  # it is marked in another window
            entry = {
                "name": name,
                "symbol": about.symbol,
                "meaning": about.meaning,
                "window": window.address,
                "focus": place,
                "marks": marks,
                "more_marks": [],
                "operand": numbers.get(name),
            }
            known = entries.setdefault(window.address, entry)
            if marks != known["marks"] and marks not in known["more_marks"]:
                known["more_marks"].append(marks)
    return list(entries.values())[:MOST_READS]


def _find_boxes(node: Derivation) -> Iterator[tuple[str, Box]]:
    """Yields each input with the part of it that the cell reads; of a flattened sum, the terms shown."""
    if node.step is None:
        return
    if node.is_flattened:
        for operand in node.operands:
            yield operand.name, tuple(np.array([i]) for i in operand.index)
        return
    shapes = [node.trace.value(name).shape for name in node.step.inputs]
    boxes = node.step.op.reads(node.index, shapes, node.step.attrs).boxes
    for name, box in zip(node.step.inputs, boxes, strict=True):
        if all(map(len, box)):
            yield name, _narrow(node, name, box)


def _narrow(node: Derivation, name: str, box: Box) -> Box:
    """Returns the part of a box that the arithmetic names, where the operation selects from the box."""
    if node.step is None or node.step.op not in SELECTING or node.expression is None:
        return box
    cells = [cell.index for cell, _ in find_operands(node.expression) if cell.name == name]
    return tuple(np.unique(positions) for positions in zip(*cells, strict=True)) if cells else box


def _is_inside(index: Index, box: Box) -> bool:
    return all(np.any(positions == i) for i, positions in zip(index, box, strict=True))


def _mark_parts(
    trace: Trace, name: str, box: Box, focus: Index, rows: int, cols: int
) -> Iterator[tuple[TableWindow, Any]]:
    """Yields a window of each part of a box that hangs together, the part with the focus first."""
    whole = find_window(trace, name, focus, rows, cols)
    row_parts, col_parts = (
        [range(1)] if axis is None else _find_runs(box[axis], focus[axis]) for axis in (whole.row, whole.col)
    )
    if len(row_parts) * len(col_parts) > MOST_PARTS:
        row_parts, col_parts = _span(row_parts), _span(col_parts)
    for row_part in row_parts:
        for col_part in col_parts:
            cell = list(focus)
            for axis, part in ((whole.row, row_part), (whole.col, col_part)):
                if axis is not None and cell[axis] not in part:
                    cell[axis] = part.start
            window = find_window(trace, name, tuple(cell), rows, cols)
            yield window, window.find_marks(row_part, col_part)


def _span(runs: list[range]) -> list[range]:
    return [range(min(run.start for run in runs), max(run.stop for run in runs))]


def _find_runs(positions: Array, focus: int) -> list[range]:
    """Returns the runs of consecutive positions, the one with the focus first.

    >>> _find_runs(np.array([0, 1, 4, 5, 8]), 4)
    [range(4, 6), range(0, 2), range(8, 9)]
    """
    ends = np.flatnonzero(np.diff(positions) != 1)
    starts = [int(positions[i]) for i in (0, *(ends + 1))]
    stops = [int(positions[i]) + 1 for i in (*ends, -1)]
    runs = [range(start, stop) for start, stop in zip(starts, stops, strict=True)]
    return sorted(runs, key=lambda run: focus not in run)


# ---- its gradient, its note, its edit


def _find_twin(trace: Trace, name: str, index: Index) -> str | None:
    """Returns the same cell of the gradient, or of the value that a gradient belongs to."""
    found = _GRADIENT.fullmatch(name)
    other = found["of"] + (found["update"] or "") if found else f"d.{name}"
    if other not in trace.tape or trace.value(other).shape != trace.value(name).shape:
        return None
    return trace.address(trace.tape.resolve(other), index)


def _make_note(node: Derivation) -> str | None:
    """Returns what the line does not say: another order of addition, another precision."""
    notes = [node.note] if node.note else []
    given = node.expression.value if node.expression else node.value
    path, dtype = node.trace.run.get("path", "reference"), node.trace.run.get("dtype", "")
    if path != "reference" and format_number(given, DIGITS) != format_number(node.value, DIGITS):
        notes.append(
            f"recorded by the {path} path in {dtype}: from the recorded operands its formula gives "
            f"{format_number(given, DIGITS + 2)}"
        )
    return "; ".join(notes) or None


def _find_edit(node: Derivation) -> dict[str, Any] | None:
    """Returns what the formula of an edited cell gives, and where that stands."""
    computed = find_computed(node.trace, node.name)
    if computed is None or node.step is None:
        return None
    value = node.trace.value(computed)
    if find_place(node.index, value.shape) not in node.step.attrs["places"]:
        return None
    return {"at": node.trace.address(computed, node.index), "value": float(value[node.index])}


def _find_original(session: Session, held: HeldTrace, name: str, index: Index) -> float | None:
    """Returns the number before the first edit, where its bits were others."""
    before = session.get_original(held, name)
    if before is None or has_same_bits(before[index], held.trace.value(name)[index]):
        return None
    return float(before[index])

"""`uses`: the steps that read a value, in program order."""

from typing import Any

import numpy as np

from pellucid.explanation.address import parse
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Index
from pellucid.reference.ops.einsum import einsum, sizes_of
from pellucid.reference.ops.einsum import parse as parse_spec
from pellucid.reference.tape import Step
from pellucid.server.explorer.held_trace import HeldTrace
from pellucid.server.explorer.session import Session

MOST_READERS = 200


def answer(session: Session, trace: HeldTrace, name: str, at: str | None = None) -> dict[str, Any]:
    """Returns the first 200 steps that read a value, and its gradient's name. The address of each is a cell
    that reads the cell `at`; without `at`, its first cell."""
    found = trace.trace
    part = parse(found, name if at is None else at)
    asked = part.cell if at is not None else None
    gradient = found.tape.resolve(f"d.{part.name}")
    readers = trace.readers.get(part.name, [])
    return {
        "name": part.name,
        "readers": [
            {
                "name": reader,
                "op": step.op.name,
                "phase": step.phase,
                "meaning": found.about(reader).meaning,
                "at": found.address(reader, _find_reading_cell(found, step, part.name, asked)),
            }
            for reader in readers[:MOST_READERS]
            for step in (found.tape.steps[reader],)
        ],
        "count": len(readers),
        "gradient": gradient if gradient in found.tape.values else None,
    }


def _find_reading_cell(trace: Trace, step: Step, name: str, asked: Index | None) -> Index:
    """Returns a cell of a step that reads the asked cell of one of its inputs; its first cell where none is
    found from the letters of the axes."""
    shape = trace.value(step.name).shape
    first = (0,) * len(shape)
    if asked is None:
        return first
    find = _follow_einsum if step.op is einsum else _follow_letters
    shapes = [trace.value(read).shape for read in step.inputs]
    try:
        cell = find(trace, step, name, asked)
        boxes = step.op.reads(cell, shapes, step.attrs).boxes
    except Exception:  # a trace file may hold a step that cannot run
        return first
    is_read = any(
        read == name and all(i in positions for i, positions in zip(asked, box, strict=True))
        for read, box in zip(step.inputs, boxes, strict=True)
    )
    return cell if is_read else first


def _follow_letters(trace: Trace, step: Step, name: str, asked: Index) -> Index:
    """Returns the cell with the same index on each axis of the same letter, and 0 on the others."""
    given = dict(zip(trace.about(name).axes, asked, strict=True))
    given.setdefault("s", given.get("t", 0))
    given.setdefault("t", given.get("s", 0))
    axes, shape = trace.about(step.name).axes, trace.value(step.name).shape
    return tuple(min(given.get(axis, 0), size - 1) for axis, size in zip(axes, shape, strict=True))


def _follow_einsum(trace: Trace, step: Step, name: str, asked: Index) -> Index:
    """Returns the cell whose letters, where the input has them, are those of the asked cell."""
    spec = parse_spec(step.attrs["spec"])
    given = {key: size for key, size in step.attrs.items() if key not in ("spec", "scale")}
    sizes = sizes_of(spec.operands, [trace.value(read).shape for read in step.inputs], given)
    letters: dict[str, int] = {}
    for axis, i in zip(spec.operands[step.inputs.index(name)], asked, strict=True):
        if axis:
            places = np.unravel_index(i, [sizes[letter] for letter in axis])
            letters |= zip(axis, map(int, places), strict=True)
    return tuple(
        int(np.ravel_multi_index([letters.get(a, 0) for a in axis], [sizes[a] for a in axis])) if axis else 0
        for axis in spec.result
    )

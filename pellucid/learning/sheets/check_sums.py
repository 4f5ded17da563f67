"""Sums that a learner can check: a row of probabilities sums to 1, the gradient of softmax scores to 0."""

from collections.abc import Sequence

from pellucid.explanation.trace import Trace
from pellucid.learning.sheets.cells import Cells
from pellucid.learning.sheets.sheet import Box, SumCheck
from pellucid.learning.sheets.textbook import find_textbook_form
from pellucid.reference.op import Index


def find_checks(trace: Trace, boxes: Sequence[Box], cells: Cells) -> tuple[SumCheck, ...]:
    """Returns the rows that stand whole on a sheet and have a known sum."""
    rows: dict[tuple[str, Index], list[Box]] = {}
    for box in boxes:
        if box.key in cells.read:
            name, index = cells.read[box.key]
            rows.setdefault((name, index[:-1]), []).append(box)
    checks = []
    for (name, row), found in rows.items():
        total = _find_sum(trace, name, (*row, 0)) if trace.value(name).ndim else None
        if total is None:
            continue
        asked = {cells.read[box.key][1][-1] for box in found}
        others = [v for i, v in enumerate(trace.value(name)[row]) if i not in asked]
        if len(found) > 1 and not any(others):  # what is not asked is masked
            checks.append(SumCheck(tuple(box.key for box in found), total))
    return tuple(checks)


def _find_sum(trace: Trace, name: str, index: Index) -> float | None:
    step = trace.tape.steps[name]
    if step.op.name == "softmax":
        return 1.0
    if step.op.name == "softmax_back" or (step.op.name == "add" and find_textbook_form(trace, step, index)):
        return 0.0
    return None

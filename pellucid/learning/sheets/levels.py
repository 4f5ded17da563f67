"""The levels of a sheet: 0 worked, 1 the last step of each part open, 2 all open."""

import itertools
from dataclasses import replace

from pellucid.base.errors import UsageError
from pellucid.learning.sheets.sheet import Box, Sheet


def apply_level(sheet: Sheet, level: int) -> Sheet:
    """Returns the sheet with the answers that its level shows; level 3 is a sheet of another model."""
    if level not in (0, 1, 2):
        raise UsageError(f"a sheet has the levels 0, 1 and 2; got {level}.")
    is_open = {box.key for box in sheet.boxes} if level == 2 else set[str]()
    if level == 1:
        for _, part in itertools.groupby(sheet.boxes, _find_part):
            *_, last = steps = [(box.key, box.step) for box in part]
            is_open |= {key for key, step in steps if step == last[1]}
    boxes = (
        replace(box, shown="" if box.key in is_open else box.format(sheet.key[box.key]))
        for box in sheet.boxes
    )
    return replace(sheet, boxes=tuple(boxes), level=level)


def _find_part(box: Box) -> tuple[str, str]:
    """Returns the module of a box and its pass: boxes beside each other with the same ones are a part."""
    return box.phase, box.step.removeprefix("d.").partition(".via.")[0].rpartition(".")[0]

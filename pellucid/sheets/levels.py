"""The levels of a sheet: 0 worked, 1 the last step of each part open, 2 all open."""

import itertools
from dataclasses import replace

from pellucid.errors import UsageError
from pellucid.sheets.sheet import Box, Sheet, format_answer


def apply_level(sheet: Sheet, level: int) -> Sheet:
    """Returns the sheet with the answers that its level shows; level 3 is a sheet of another model."""
    if level not in (0, 1, 2):
        raise UsageError(f"a sheet has the levels 0, 1 and 2; got {level}.")
    is_open = {box.key for box in sheet.boxes} if level == 2 else set[str]()
    if level == 1:
        for _, part in itertools.groupby(sheet.boxes, _find_part):
            boxes = list(part)
            is_open |= {box.key for box in boxes if box.step == boxes[-1].step}
    boxes = tuple(
        replace(box, shown="" if box.key in is_open else format_answer(sheet.key[box.key], box.decimals))
        for box in sheet.boxes
    )
    return replace(sheet, boxes=boxes, level=level)


def _find_part(box: Box) -> tuple[str, str]:
    """Returns the module of a box and its pass: boxes beside each other with the same ones are a part."""
    return box.phase, box.step.removeprefix("d.").partition(".via.")[0].rpartition(".")[0]

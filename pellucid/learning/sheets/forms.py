"""Forms and levels of a sheet, made from the same program.

The forms: compute each number, give its sign, find the box with a mistake. Each answer is a number, so they
are marked as any sheet. The levels: 0 worked, 1 the last step of each part open, 2 all open.
"""

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import replace

from pellucid.base.errors import UsageError
from pellucid.explanation.rule import RuleCall, find_keys
from pellucid.learning.sheets.sheet import Box, Given, Sheet


def apply_form(sheet: Sheet, form: str) -> Sheet:
    """Returns the sheet in another form; `compute` is the sheet as it is."""
    return FORM_MAKERS[form](sheet)


def _ask_signs(sheet: Sheet) -> Sheet:
    """Asks for 1, 0 or −1: the signs of the numbers in focus, from the printed numbers before them. Of two
    of which one is computed from the other, the earlier one is asked: its number would be its answer."""
    in_focus = {box.key for box in sheet.boxes if box.focus}
    focus = [box for box in sheet.boxes if box.focus and in_focus.isdisjoint(find_keys(box.rule))]
    read = {key for box in focus for key in find_keys(box.rule)}
    given = {key: number for key, number in sheet.given.items() if key in read}
    given |= {
        box.key: Given(box.format(sheet.key[box.key]), box.exact, box.symbol)
        for box in sheet.boxes
        if box.key in read
    }
    return replace(
        sheet,
        title=f"{sheet.title}: signs",
        given=given,
        boxes=tuple(_ask_sign(box) for box in focus),
        checks=(),
        answers={},
    )


def _ask_sign(box: Box) -> Box:
    above, below = RuleCall("greater", (box.rule, 0.0)), RuleCall("greater", (0.0, box.rule))
    return replace(
        box,
        symbol=f"sign of {box.symbol}",
        rule=RuleCall("subtract", (above, below)),
        decimals=0,
        exact=True,
        form="sign",
        shown="",
        mistakes={},
    )


def _plant_mistake(sheet: Sheet) -> Sheet:
    """Works the sheet out with one mistake, and asks for the number of its box; the seed chooses it."""
    found = [(number, name) for number, box in enumerate(sheet.boxes, 1) for name in box.mistakes]
    random.Random(sheet.seed).shuffle(found)
    planted = (_replace_rule(sheet, number, name) for number, name in found)
    number, wrong = next((one for one in planted if all(map(math.isfinite, one[1].key.values()))), (0, sheet))
    if not number:
        raise UsageError("no mistake of the catalogue shows in these numbers; choose another --focus.")
    worked, box = apply_level(wrong, 0), sheet.boxes[number - 1]
    asked = Box(
        key="find",
        symbol="number of the box",
        meaning="the mistake",
        step="find",
        op=box.op,
        phase=box.phase,
        formula="",
        rule=float(number),
        decimals=0,
        exact=True,
        focus=True,
        form="find",
    )
    title = f"{sheet.title}: find the mistake"
    return replace(worked, title=title, boxes=(*worked.boxes, asked), level=sheet.level)


def _replace_rule(sheet: Sheet, number: int, mistake: str) -> tuple[int, Sheet]:
    """Returns the number and the sheet in which that box computes what the mistake computes."""
    boxes = list(sheet.boxes)
    wrong = boxes[number - 1]
    boxes[number - 1] = replace(wrong, rule=wrong.mistakes[mistake], exact=False)
    return number, replace(sheet, boxes=tuple(boxes), checks=())


FORM_MAKERS: dict[str, Callable[[Sheet], Sheet]] = {
    "compute": lambda sheet: sheet,
    "sign": _ask_signs,
    "find": _plant_mistake,
}


# ---- levels


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

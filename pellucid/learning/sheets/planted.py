"""Planted mistakes: the answers of a learner who makes one mistake in one box and goes on with that number.

The tests plant every visible mistake of a sheet, one at a time, and mark it: exactly one box must be wrong,
and its mistake named.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from pellucid.explanation.rule import Rule, compute
from pellucid.learning.sheets.learner import find_slips
from pellucid.learning.sheets.make import VISIBLE
from pellucid.learning.sheets.mark import Grade, mark_sheet
from pellucid.learning.sheets.sheet import Box, Sheet, format_answer
from pellucid.verification.mistakes import resolve_mistake

EXACT = 2
"""The decimals that an exact number has at most."""


class Plant(NamedTuple):
    """A mistake in one box of a sheet: its name and its wrong rule."""

    box: Box
    mistake: str
    rule: Rule


def find_plants(sheet: Sheet) -> Iterator[Plant]:
    """Yields every mistake in every box that moves it by more than `VISIBLE` units of its last place, and
    has a number where the earlier answers are rounded."""
    answers = answer_sheet(sheet).answers
    rounded = sheet.key | {key: float(answer) for key, answer in answers.items()}
    for box in sheet.boxes:
        specific = [*box.mistakes.items(), *find_slips(sheet, box, is_generic=False)]
        known = {rule for _, rule in specific}
        generic = [
            (name, rule) for name, rule in find_slips(sheet, box, is_generic=True) if rule not in known
        ]
        for name, rule in (*specific, *generic):
            is_number = math.isfinite(compute(rule, rounded))
            if is_number and not box.shown and is_visible(sheet, box, rule):
                yield Plant(box, name, rule)


def find_visible_mistakes(sheet: Sheet) -> set[str]:
    """Returns the catalogue's names of the mistakes that show in some box of a sheet."""
    return {resolve_mistake(plant.mistake) for plant in find_plants(sheet)}


def is_visible(sheet: Sheet, box: Box, rule: Rule) -> bool:
    """Tests whether a wrong rule moves a box by more than `VISIBLE` units of its last place."""
    return abs(compute(rule, sheet.key) - sheet.key[box.key]) > VISIBLE * 10.0**-box.decimals


def answer_sheet(sheet: Sheet, plant: Plant | None = None) -> Sheet:
    """Returns the sheet with the answers of a learner who rounds each to the asked digits, goes on with the
    rounded numbers, and makes the planted mistake."""
    values = {key: given.value for key, given in sheet.given.items()}
    answers = {}
    for box in sheet.boxes:
        if box.shown:
            values[box.key] = sheet.key[box.key]
            continue
        rule = plant.rule if plant and plant.box.key == box.key else box.rule
        value = compute(rule, values)
        answers[box.key] = format_answer(value, max(box.decimals, EXACT) if box.exact else box.decimals)
        values[box.key] = float(answers[box.key])
    return replace(sheet, answers=answers)


class PlantOutcome(StrEnum):
    """What marking says of a planted mistake."""

    OWN_NAME = "under its own name"
    OTHER_NAME = "under another name"
    """Another mistake, or a more specific one, gives the same number."""
    UNEXPLAINED = "at its box, without a name"
    ELSEWHERE = "not at its box alone"


def mark_plant(sheet: Sheet, plant: Plant) -> PlantOutcome:
    """Returns what marking says of a learner who makes one mistake."""
    wrong = [marked for marked in mark_sheet(answer_sheet(sheet, plant)).boxes if marked.grade is Grade.WRONG]
    if [marked.box.key for marked in wrong] != [plant.box.key]:
        return PlantOutcome.ELSEWHERE
    names = [found.name for found in wrong[0].mistakes if not found.place]
    if plant.mistake in names:
        return PlantOutcome.OWN_NAME
    return PlantOutcome.OTHER_NAME if wrong[0].mistakes else PlantOutcome.UNEXPLAINED

"""Whole sheets: marked soon, and whatever the answers are."""

import contextlib
import json
import random
import time
from collections.abc import Iterable
from dataclasses import replace

import pytest

import pellucid
from pellucid.base.errors import PellucidError
from pellucid.learning.sheets.file import fill_key
from pellucid.learning.sheets.make import make_sheet
from pellucid.learning.sheets.mark import STAGES, make_hint, mark_sheet
from pellucid.learning.sheets.sheet import Sheet
from tests.learning.sheets.test_make_random import MODELS, RULES, run

# ---- time


@pytest.mark.timed
def test_a_sheet_of_a_hundred_boxes_is_marked_within_a_tenth_of_a_second() -> None:
    """With a tenth of the answers wrong, and a tenth open."""
    trace = pellucid.trace("example-6", "A B", target="C", backward=True)
    sheet = fill_key(make_sheet(trace, ["probs[t=1]"], boxes=120, stop=["blocks.0.resid_post"]))
    assert len(sheet.boxes) >= 100
    wrong = {box.key: "9.87" for box in sheet.boxes[5::10]}
    opened = dict.fromkeys((box.key for box in sheet.boxes[::10]), "")
    answered = replace(sheet, answers={**sheet.answers, **wrong, **opened})
    times = []
    for _ in range(3):
        begun = time.process_time()
        mark_sheet(answered)
        times.append(time.process_time() - begun)
    assert min(times) < 0.1


# ---- anything

EXTREMES = ["0", "-1", "1e300", "-1e300", "1e-300", "3", "0.5"]
ODD_ANSWERS = [
    "", "0", "-0", "inf", "-∞", "1e300", "1e-300", "1/3", "x", "9" * 70, "0." + "3" * 60, "12 %", "2",
]  # fmt: skip


def distort(sheet: Sheet, draw: random.Random) -> Sheet:
    """Returns the sheet with given numbers of any size, odd decimals, and answers of any kind."""
    given = {
        key: replace(number, text=draw.choice(EXTREMES)) if draw.random() < 0.3 else number
        for key, number in sheet.given.items()
    }
    boxes = tuple(
        replace(box, decimals=draw.choice([0, 3, 8, 30]), exact=draw.random() < 0.2, shown="")
        for box in sheet.boxes
    )
    odd = {box.key: draw.choice([*ODD_ANSWERS, f"{draw.gauss(0, 1):.4f}"]) for box in boxes}
    return replace(sheet, given=given, boxes=boxes, answers=odd)


def mark_anything(configs: Iterable[str], count: int) -> None:
    """Marks and explains distorted sheets, each on a row of one of these models' runs."""
    draw, sheets = random.Random(count), list[Sheet]()
    for name in configs:
        trace = run(name, draw.choice(sorted(RULES)))
        computed = [step for step in trace.tape.steps if trace.tape[step].dtype.kind == "f"]
        while True:
            with contextlib.suppress(PellucidError):  # the value is a copy of a printed one
                sheets.append(make_sheet(trace, [draw.choice(computed)], boxes=draw.choice([5, 20, 60])))
                break
    for _ in range(count):
        marking = mark_sheet(distort(draw.choice(sheets), draw))
        json.dumps(marking.to_data(), allow_nan=False)
        for marked in draw.sample(marking.boxes, min(5, len(marking.boxes))):
            assert all(make_hint(marking, marked, stage) for stage in STAGES)


def test_any_answers_are_marked() -> None:
    mark_anything(["capped", "squared"], count=20)


@pytest.mark.torture
def test_many_answers_are_marked() -> None:
    mark_anything(MODELS, count=2000)

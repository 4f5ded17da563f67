"""The sheet of level 3: the lesson's step in a pretrained model, made where the model is, and shipped."""

import functools
from dataclasses import replace
from pathlib import Path

from pellucid.base.errors import UsageError
from pellucid.explanation.trace import Trace
from pellucid.learning.lessons.ladder import Lesson, sheet_settings
from pellucid.learning.sheets.make import make_sheet
from pellucid.learning.sheets.sheet import Sheet
from pellucid.model import load


def make_transfer(lesson: Lesson, model: str = "") -> Sheet:
    """Returns the sheet that the head of the lesson's page describes, from a run of its model; `model` is
    where that lies, by default its name in the library."""
    head = lesson.page.head.transfer
    if head is None:
        raise UsageError(f"the page of lesson {lesson.number} has no table [transfer].")
    has_gradients = any(at.startswith("d.") for at in head.focus)
    settings = (head.target, has_gradients, head.update, head.lr, head.only)
    trace = _trace(model or head.model, head.prompt, *settings)
    title = f"Lesson {lesson.number} in {head.model}: {lesson.title}"
    sheet = make_sheet(trace, head.focus, head.stop, title=title, **sheet_settings(head))
    return replace(sheet, lesson=lesson.number, level=3)


@functools.lru_cache(maxsize=1)
def _trace(
    model: str,
    prompt: str,
    target: str | None,
    backward: bool,
    update: str | None,
    lr: float | None,
    only: tuple[str, ...],
) -> Trace:
    """Returns the run of a pretrained model; the last one is kept, since several lessons read it."""
    return load(model).trace(prompt, target=target, backward=backward, update=update, lr=lr, only=only)


def find_transfer_file(lesson: Lesson) -> Path:
    """Returns where the shipped sheet of a lesson is."""
    return lesson.path.with_suffix(".transfer.json")

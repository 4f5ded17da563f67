"""The sheet of level 3: the lesson's step in a pretrained model, made where the model is, and shipped."""

import functools
from dataclasses import replace
from pathlib import Path

from pellucid.errors import UsageError
from pellucid.explain.trace import Trace
from pellucid.lessons.ladder import Lesson, sheet_settings
from pellucid.sheets.make import make_sheet
from pellucid.sheets.sheet import Sheet
from pellucid.workbench import load


def make_transfer(lesson: Lesson) -> Sheet:
    """Returns the sheet that the head of the lesson's page describes, from a run of its model."""
    head = lesson.page.head.transfer
    if head is None:
        raise UsageError(f"the page of lesson {lesson.number} has no table [transfer].")
    trace = _trace(head.model, head.prompt, head.target, head.update, head.lr, head.only)
    title = f"Lesson {lesson.number} in {head.model}: {lesson.title}"
    sheet = make_sheet(trace, head.focus, head.stop, title=title, **sheet_settings(head))
    return replace(sheet, lesson=lesson.number, level=3)


@functools.lru_cache(maxsize=1)
def _trace(
    model: str,
    prompt: str,
    target: str | None,
    update: str | None,
    lr: float | None,
    only: tuple[str, ...],
) -> Trace:
    """Returns the run of a pretrained model; the last one is kept, since several lessons read it."""
    is_backward = target is not None and update is None
    return load(model).trace(prompt, target=target, backward=is_backward, update=update, lr=lr, only=only)


def find_transfer_file(lesson: Lesson) -> Path:
    """Returns where the shipped sheet of a lesson is."""
    return lesson.path.with_suffix(".transfer.json")

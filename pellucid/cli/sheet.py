"""`pellucid sheet`: a worksheet to do by hand, from a lesson or from any model's own numbers."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.base.arguments import check_one_of
from pellucid.base.errors import PellucidError, UsageError
from pellucid.cli.options import Force, OptionalPrompts, Targets, UpdateOptions, with_options
from pellucid.cli.terminal import note

if TYPE_CHECKING:
    from pellucid.explanation.trace import Trace
    from pellucid.learning.sheets.sheet import Sheet

_LESSON = re.compile(r"lesson-?\d+", re.IGNORECASE)
_LOSS = re.compile(r"(loss|nll|lse)(@\d+)?")
PATIENCE = 2.0
"""Seconds after which a line says what the command is doing."""


@with_options
def sheet(
    origin: Annotated[
        str,
        typer.Argument(
            help="A lesson, lesson-15; a model, as in `pellucid trace`; or review: the skills that are due.",
            metavar="SOURCE",
        ),
    ],
    prompts: OptionalPrompts = None,
    focus: Annotated[
        list[str] | None,
        typer.Option(
            help="The numbers of a model's run to ask, NAME[h=3,t=5]; an axis left out means all of it; "
            "repeatable. If omitted, rows worth doing are proposed.",
            metavar="ADDRESS",
        ),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(
            help="Print the values whose names match, do not ask them; repeatable.", metavar="PATTERN"
        ),
    ] = None,
    boxes: Annotated[int, typer.Option(help="The most numbers to ask.", min=1, max=5000)] = 20,
    top: Annotated[int, typer.Option(help="The terms of a long sum to ask.", min=1, max=100)] = 4,
    digits: Annotated[int, typer.Option(help="The decimals to ask of a number below 10.", min=1, max=10)] = 4,
    level: Annotated[
        int | None,
        typer.Option(
            help="0 worked, 1 the last step of each part open, 2 all open (the default), 3 a lesson's sheet "
            "from a pretrained model.",
            min=0,
            max=3,
        ),
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            help="compute; sign: only the signs; find: the box that holds a mistake.", metavar="FORM"
        ),
    ] = "compute",
    seed: Annotated[
        int | None, typer.Option(help="Another example of a lesson.", min=0, max=1_000_000)
    ] = None,
    part: Annotated[
        int | None, typer.Option(help="Which sheet of a lesson that has several, from 1.", min=1, max=100)
    ] = None,
    target: Targets = None,
    *,
    updates: UpdateOptions,
    key: Annotated[bool, typer.Option("--key", help="The answer key, with the arithmetic.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The file to write: .html to print, .md to type into, .json; if omitted, the sheet is "
            "printed here.",
            metavar="FILE",
        ),
    ] = None,
    force: Force = False,
) -> None:
    """A worksheet to do by hand, made from a run's own arithmetic.

    `pellucid mark FILE` marks a .md or .json file with answers, without the model.
    """
    from pellucid.learning.sheets.file import check_sheet_output
    from pellucid.learning.sheets.forms import FORM_MAKERS, apply_form

    check_one_of("--form", form, list(FORM_MAKERS))
    if output is not None:
        check_sheet_output(output, force)
    run = updates.make_run(target)
    if origin == "review" or _LESSON.fullmatch(origin):
        given = {"the prompt": prompts, "--focus": focus, "--stop": stop, **run}
        if names := [name for name, value in given.items() if value]:
            raise UsageError(f"{origin} has its own run: omit {_option(names[0])}, or give a model.")
        made = _make_review() if origin == "review" else _make_lesson_sheet(origin, level, seed, part)
    else:
        _refuse_lesson_options(origin, level, seed, part)
        made = _make_model_sheet(
            origin,
            prompts or [],
            focus or [],
            {"stop": stop or [], "boxes": boxes, "top": top, "digits": digits},
            2 if level is None else level,
            run,
            is_proposed=output is None,
        )
    if made is not None:
        _deliver(apply_form(made, form), output, key, force)


def _option(name: str) -> str:
    return name if name.startswith(("-", "the ")) else f"--{'set' if name == 'settings' else name}"


def _deliver(made: "Sheet", output: Path | None, key: bool, force: bool) -> None:
    """Writes a sheet, or prints it."""
    from pellucid.base.formatting import pluralize
    from pellucid.learning.sheets.file import fill_key, write_sheet
    from pellucid.learning.sheets.page import write_markdown

    if output is None:
        print(write_markdown(fill_key(made) if key else made, key))
        return
    write_sheet(output, made, key, force)
    asked = sum(not box.shown for box in made.boxes)
    what = "the answer key of " if key else ""
    count = f"{len(made.boxes) if key else asked:,} box{'es' * (asked != 1)}"
    print(f"{output}: {what}{count} from {pluralize(len(made.given), 'given number')}")
    unseen = made.source.get("unseen")
    if unseen and made.lesson is None:
        print(f"mistakes that these numbers cannot show: {'; '.join(unseen)}")
    if asked and not key and output.suffix.lower() != ".html":
        print(f"fill it in, then: pellucid mark {output}")


# ---- a lesson


def _make_lesson_sheet(origin: str, level: int | None, seed: int | None, part: int | None) -> "Sheet":
    from pellucid.learning.lessons.ladder import find_lesson, lesson_sheets

    lesson = find_lesson(origin)
    with progress(f"running the program of lesson {lesson.number}"):
        sheets = lesson_sheets(lesson, 2 if level is None else level, seed or 0)
    if part is not None and part > len(sheets):
        count = "1 sheet" if len(sheets) == 1 else f"{len(sheets)} sheets"
        raise UsageError(f"lesson {lesson.number} has {count} at this level; --part {part} does not exist.")
    if part is None and len(sheets) > 1:
        note(f"lesson {lesson.number} has {len(sheets)} sheets; this is --part 1.")
    return sheets[(part or 1) - 1]


def _make_review() -> "Sheet | None":
    from pellucid.learning.lessons.ladder import make_review
    from pellucid.learning.sheets.history import read_record

    with progress("running the programs of your lessons"):
        made = make_review(read_record())
    if isinstance(made, str):
        print(made)
        return None
    return made


# ---- a model


def _refuse_lesson_options(model: str, level: int | None, seed: int | None, part: int | None) -> None:
    for name, value in {"--seed": seed, "--part": part}.items():
        if value is not None:
            raise UsageError(f"{name} chooses among the sheets of a lesson; {model} is not one: omit it.")
    if level == 3:
        raise UsageError(
            f"level 3 is a sheet that a lesson ships; of {model}, the levels 0, 1 and 2 can be made."
        )


def _make_model_sheet(
    model: str,
    prompts: list[str],
    focus: list[str],
    settings: dict[str, Any],
    level: int,
    run: dict[str, Any],
    is_proposed: bool,
) -> "Sheet | None":
    """Returns a sheet of a model's run; None where rows were proposed instead."""
    from pellucid.learning.sheets.drafts import propose_focus
    from pellucid.learning.sheets.forms import apply_level
    from pellucid.learning.sheets.make import make_sheet

    if not prompts:
        from pellucid.explanation.example_command import propose_command
        from pellucid.learning.lessons.ladder import list_lessons

        try:
            example = propose_command("sheet", model)
        except PellucidError:  # it is neither a lesson nor a model
            example = propose_command("sheet", "abcd")
        raise UsageError(
            f"{model} is not a lesson; the lessons are {list_lessons()}. The sheet of a model needs a "
            f"prompt, for example: {example}"
        )
    for at in focus:
        _check_run(at, run)
    with progress(f"running the specification of {model}"):
        trace = _trace(model, prompts, focus, run)
        if not focus:
            proposed = propose_focus(trace)
            if is_proposed:
                _print_proposals(model, prompts, proposed)
                return None
            note(f"no --focus given; rows worth doing: {', '.join(proposed)}. This is the first.")
            focus = proposed[:1]
        more = {"prompts": prompts, "targets": run.get("target"), "update": _describe_update(run)}
        made = make_sheet(
            trace, focus, source={name: value for name, value in more.items() if value}, **settings
        )
    return apply_level(made, level)


def _check_run(at: str, run: dict[str, Any]) -> None:
    """Raises where the run that was asked for does not have a value, with the option that it needs."""
    name = at.partition("[")[0].strip()
    if "@" in name and "update" not in run:
        raise UsageError(f"{at} needs an update: the weights of this run do not change; give --update.")
    if (name.startswith("d.") or _LOSS.fullmatch(name)) and "target" not in run:
        what = "gradient" if name.startswith("d.") else "loss"
        raise UsageError(f"{at} needs a target: there is no {what} without one; give --target.")


def _trace(model: str, prompts: list[str], focus: list[str], run: dict[str, Any]) -> "Trace":
    from pellucid.explanation.tracing import trace
    from pellucid.model import load

    needs_gradients = any(at.strip().startswith("d.") for at in focus) and "update" not in run
    return trace(load(model), prompts, backward=needs_gradients, **run)


def _describe_update(run: dict[str, Any]) -> dict[str, Any]:
    if "update" not in run:
        return {}
    named = {name: run[name] for name in ("lr", "clip", "only", "freeze", "steps") if name in run}
    return {"rule": run["update"], **named, **run.get("settings", {})}


def _print_proposals(model: str, prompts: list[str], proposed: list[str]) -> None:
    import shlex

    print("rows worth doing:")
    for at in proposed:
        words = " ".join(shlex.quote(word) for word in (model, *prompts))
        print(f'  pellucid sheet {words} --focus "{at}" -o sheet.md')


@contextmanager
def progress(text: str) -> Iterator[None]:
    """Prints one line on standard error where the block takes longer than two seconds."""
    timer = threading.Timer(PATIENCE, note, [f"{text} …"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()

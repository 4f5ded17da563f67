"""`pellucid mark`: the answers of a worksheet, each step from the learner's own numbers."""

import contextlib
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.base.errors import PellucidError, TokenError, UsageError
from pellucid.base.formatting import pluralize
from pellucid.cli.options import Json
from pellucid.cli.terminal import note, print_json

if TYPE_CHECKING:
    from pellucid.learning.sheets.mark import MarkedBox, Marking
    from pellucid.learning.sheets.sheet import Box, Sheet

WIDTH = 80
WIDEST_CELL = 24


def mark(
    file: Annotated[Path, typer.Argument(help="A sheet with answers, FILE.json or FILE.md.")],
    ask: Annotated[
        bool, typer.Option("--ask", help="Ask the open boxes one by one; answers are written to the file.")
    ] = False,
    hint: Annotated[
        int | None,
        typer.Option(
            help="Only a hint for the first wrong box: 1 where, 2 the mistake and the formula, 3 the "
            "arithmetic with your numbers, 4 the value.",
            min=1,
            max=4,
        ),
    ] = None,
    no_record: Annotated[
        bool, typer.Option("--no-record", help="Do not add the result to the learner's record.")
    ] = False,
    json: Json = False,
) -> None:
    """Grade a worksheet: right, right from your numbers, rounding, or wrong and by which mistake.

    Exit code 0: nothing is wrong; 1: a box is wrong, or its answer is not a number.
    """
    from pellucid.learning.sheets.file import read_sheet
    from pellucid.learning.sheets.mark import Grade, mark_sheet

    if ask and json:
        raise UsageError("--ask talks to a person and --json to a program: give one of them.")
    sheet = read_sheet(file)
    tried: list[MarkedBox] = []
    peeked: list[MarkedBox] = []
    if ask:
        sheet = _ask_boxes(file, sheet, tried, peeked)
    marking = mark_sheet(sheet)
    if json:
        print_json(marking.to_data())
    elif hint is not None:
        _print_hint(marking, hint)
    else:
        _print_marking(marking, file)
    if not no_record and hint is None:
        _record(marking, tried, peeked)
    if marking.counts[Grade.WRONG] or marking.counts[Grade.UNREADABLE]:
        raise typer.Exit(1)


def _record(marking: "Marking", tried: list["MarkedBox"], peeked: list["MarkedBox"]) -> None:
    """Adds the result to the record; where that cannot be written, the marking still counts."""
    from pellucid.learning.sheets.history import record_marking

    try:
        record_marking(marking, tried, peeked)
    except PellucidError as error:
        note(f"The record was not written: {error}")


# ---- what is printed


def _print_marking(marking: "Marking", file: Path) -> None:
    from pellucid.learning.sheets.mark import Grade, explain_fitting, make_hint

    print(marking.sheet.title)
    numbers = {box.key: number for number, box in enumerate(marking.sheet.boxes, 1)}
    rows = [
        (f"({numbers[marked.box.key]}) {marked.box.symbol}", marked.text.strip(), _describe(marked))
        for marked in marking.boxes
        if marked.grade not in (Grade.RIGHT, Grade.OPEN)
    ]
    name, answer = (min(max((len(row[i]) for row in rows), default=0), WIDEST_CELL) for i in (0, 1))
    for row in rows:
        _print_wrapped(f"  {row[0]:<{name}}  {row[1]:>{answer}}  {row[2]}", 6)
    for failed in marking.failed:
        symbols = [marking.sheet.symbol(key) for key in failed.check.keys]
        terms = symbols if len(symbols) <= 4 else [symbols[0], symbols[1], "…", symbols[-1]]
        _print_wrapped(f"  {' + '.join(terms)} = {failed.text}: it should be {failed.check.sum:g}", 6)
    if first := marking.first_wrong:
        _print_wrapped(f"The first wrong box is {make_hint(marking, first, 1)}", 2)
        for line in explain_fitting(marking, first).splitlines():
            _print_wrapped(f"  What gives {first.text.strip()}: {line}", 4)
        _print_wrapped(f"A hint: pellucid mark {file} --hint 2", 2)
    print(_format_totals(marking))


def _describe(marked: "MarkedBox") -> str:
    """Returns the verdict on a box: "rounding: give 4 decimals"."""
    reasons = [str(found) for found in marked.mistakes] or [marked.note]
    return ": ".join(filter(None, (str(marked.grade), " or ".join(reasons))))


def _format_totals(marking: "Marking") -> str:
    """Returns one line: "17 of 22 right (3 from your numbers, 2 rounding), 1 wrong, 4 open"."""
    from pellucid.learning.sheets.mark import Grade

    counts = marking.counts
    right = sum(count for grade, count in counts.items() if grade.is_right)
    kinds = {"from your numbers": counts[Grade.FROM_YOURS], "rounding": counts[Grade.ROUNDING]}
    among = ", ".join(f"{count} {kind}" for kind, count in kinds.items() if count)
    others = [
        f"{counts[grade]} {grade}" for grade in (Grade.WRONG, Grade.UNREADABLE, Grade.OPEN) if counts[grade]
    ]
    return ", ".join([f"{right} of {len(marking.boxes)} right{f' ({among})' if among else ''}", *others])


def _print_hint(marking: "Marking", stage: int) -> None:
    from pellucid.learning.sheets.mark import Grade, make_hint

    first = marking.first_wrong or next((m for m in marking.boxes if m.grade is Grade.OPEN), None)
    if first is None:
        unread = [one.box.symbol for one in marking.boxes if one.grade is Grade.UNREADABLE]
        what = f"not a number: {', '.join(unread)}" if unread else "Nothing is wrong, and no box is open"
        _print_lines(f"{what}.")
        return
    _print_lines(make_hint(marking, first, stage))


def _print_wrapped(text: str, indent: int) -> None:
    print(textwrap.fill(text, WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False))


# ---- box by box


def _ask_boxes(file: Path, sheet: "Sheet", tried: list["MarkedBox"], peeked: list["MarkedBox"]) -> "Sheet":
    """Asks every open box in turn, until the input ends, and writes each answer to the file as soon as it is
    typed, so that no interruption loses one. Wrong tries, and boxes whose value was shown, are added to the
    lists."""
    from pellucid.base.files import read_text
    from pellucid.learning.sheets.answers import is_blank, parse_answer
    from pellucid.learning.sheets.blanks import MOST_BYTES
    from pellucid.learning.sheets.file import check_sheet_output, write_answers
    from pellucid.learning.sheets.mark import STAGES, explain_fitting, make_hint, mark_sheet

    check_sheet_output(file, force=True)
    before = read_text(file, MOST_BYTES)
    typed: dict[str, str] = {}

    def apply_answers() -> "Sheet":
        return replace(sheet, answers={**sheet.answers, **typed})

    def ask(box: "Box") -> None:
        asked = "exact" if box.exact else pluralize(box.decimals, "decimal")
        stage = 0
        while text := _read_line(f"{box.symbol} ({asked}) = "):
            if text.lower() == "h":
                stage = 3 if stage == 1 else min(stage + 1, STAGES[-1])  # the formula stands above
                marking = mark_sheet(apply_answers())
                _print_lines(make_hint(marking, marking.find(box.key), stage))
                if stage == STAGES[-1]:
                    peeked.append(marking.find(box.key))
            elif parse_answer(text) is None:
                print("  not a number, such as 0.25, 1/4, 3e-4, ln 2 or -inf")
            else:
                typed[box.key] = text
                write_answers(file, sheet, typed, before)
                marking = mark_sheet(apply_answers())
                marked = marking.find(box.key)
                _print_lines(_describe(marked) if not marked.mistakes else str(marked.grade))
                _print_lines(explain_fitting(marking, marked))
                if marked.grade.is_right:
                    return
                tried.append(marked)

    opened = [box for box in sheet.boxes if not box.shown and is_blank(sheet.answers.get(box.key, ""))]
    print("A number answers a box; h gives a hint, Enter goes on, Ctrl-C ends. Answers are kept.")
    with contextlib.suppress(EOFError):
        for number, box in enumerate(opened, 1):
            print()
            _print_wrapped(": ".join(filter(None, (f"{number} of {len(opened)}", box.meaning))), 2)
            if box.formula != box.symbol:
                _print_wrapped(f"  {box.formula}", 4)
            ask(box)
    print()
    return apply_answers()


def _read_line(prompt: str) -> str:
    try:
        return input(prompt).strip()
    except UnicodeDecodeError as error:
        raise TokenError(f"standard input is not UTF-8 ({error.reason}); type the number again.") from None


def _print_lines(text: str) -> None:
    for line in text.splitlines():
        _print_wrapped(f"  {line}", 4)

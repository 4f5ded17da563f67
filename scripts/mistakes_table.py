"""The table of mistakes: what catches each, and what the lessons' worksheets show of them.

Every visible mistake is planted in every box of every sheet, one at a time, and the sheet is marked.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from pellucid.base.formatting import pluralize
from pellucid.learning.lessons.ladder import find_hidden_mistakes, find_lesson, lessons, make_sheets
from pellucid.learning.sheets.planted import PlantOutcome, find_plants, find_visible_mistakes, mark_plant
from pellucid.learning.sheets.sheet import Sheet
from pellucid.verification.mistakes import MISTAKES, SHEET_MISTAKES, resolve_mistake


def list_catalogue() -> Iterator[str]:
    """Yields each mistake with what catches it and its sentence."""
    names = [*SHEET_MISTAKES, *(name for name in MISTAKES if name not in SHEET_MISTAKES)]
    width = max(map(len, names))
    yield f"{pluralize(len(names), 'mistake')}, {len(SHEET_MISTAKES)} of them in a box of a worksheet\n"
    for name in names:
        entry = SHEET_MISTAKES.get(name)
        caught = [f"marking ({entry.kind})"] if entry else []
        caught += ["compare and verify"] if name in MISTAKES else []
        yield f"{name:<{width}}  {', '.join(caught)}" + (f": {entry.explanation}" if entry else "")


def list_lesson(number: int) -> Iterator[str]:
    """Yields what the sheets of a lesson show, and what they cannot."""
    lesson = find_lesson(number)
    sheets = make_sheets(lesson, 0)
    yield f"\nLesson {number}: {lesson.title}"
    shipped = lesson.program.transfer
    for sheet in (*sheets, *([shipped] if shipped else [])):
        yield from _count_plants(sheet)
    visible = set[str]().union(*map(find_visible_mistakes, sheets))
    unseen = {resolve_mistake(name) for sheet in sheets for name in sheet.source.get("unseen", ())} - visible
    yield f"  shown: {'; '.join(sorted(visible))}"
    yield f"  too small to be seen: {'; '.join(sorted(unseen)) or 'none'}"
    if hidden := find_hidden_mistakes(lesson, sheets):
        yield f"  on the lesson's list and not shown: {'; '.join(hidden)}"


def _count_plants(sheet: Sheet) -> Iterator[str]:
    outcomes = Counter(mark_plant(sheet, plant) for plant in find_plants(sheet))
    total = outcomes.total()
    counts = ", ".join(f"{outcomes[outcome]} {outcome}" for outcome in PlantOutcome if outcomes[outcome])
    share = f" ({outcomes[PlantOutcome.OWN_NAME] / total:.1%})" if total else ""
    asked = f"{len(sheet.boxes)} boxes, {pluralize(total, 'visible mistake')}"
    yield f"  {sheet.title}, level {sheet.level}: {asked}: {counts}{share}"


def main(arguments: Sequence[str]) -> None:
    for line in list_catalogue():
        print(line)
    for number in map(int, arguments) if arguments else lessons():
        for line in list_lesson(number):
            print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

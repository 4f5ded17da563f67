"""A lesson as Markdown: a section with its references filled in, and the whole with its pictures as files."""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pellucid.base.errors import FileError, PellucidError
from pellucid.learning.lessons.ladder import FOLDER, Lesson, find_lesson, make_sheets
from pellucid.learning.lessons.page import LESSON_LINK, REFERENCE, SECTIONS, Page, PageSection
from pellucid.learning.lessons.placeholders import (
    BLOCKS,
    PageAnswer,
    PageCode,
    PageFold,
    PageNumber,
    PageNumbers,
    PagePicture,
    PageSheet,
    PageTable,
    References,
    Resolved,
)
from pellucid.learning.sheets.layout import lay_out_steps
from pellucid.learning.sheets.sheet import LEVELS, Sheet
from pellucid.reference.ops import find_op
from pellucid.report.svg import write_svg

PIECES = re.compile(r"(`[^`]*`)")
"""Splits a line at its code."""
FENCE = re.compile(r" *```")


@dataclass(frozen=True)
class PageStyle:
    """How the parts of a page look; what is not given is Markdown."""

    lesson_link: Callable[[int], str]
    """Returns the link to another lesson; raises where there is none of that number."""
    picture: Callable[[PagePicture], str]
    sheet: Callable[[PageSheet], str]
    number: Callable[[PageNumber], str] = lambda number: number.text
    code: Callable[[str], str] = str
    """Returns the text of a formula, or of the arithmetic of a number."""
    answer: Callable[[str], str] = lambda text: f"<details><summary>Answer</summary>{text}</details>"
    fold: tuple[str, str] = ("<details><summary>Answer</summary>\n", "\n</details>")
    """The lines around a longer answer."""


def render_section(page: Page, section: PageSection, references: References, style: PageStyle) -> str:
    """Returns a section as Markdown without its heading; a reference that names nothing is a FileError with
    its file and line."""
    lines, is_code, is_folded = list[str](), False, False
    for offset, line in enumerate(section.text.split("\n"), 1):
        try:
            if FENCE.match(line):
                is_code = not is_code
            found = list(_resolve_line(line, references, is_code))
            blocks = [part for part in found if isinstance(part, BLOCKS)]
            if blocks and not (len(found) == 1 and line.strip().startswith("{{")):
                raise FileError("this reference stands alone on its line")
            for part in blocks:
                if isinstance(part, PageFold):
                    if part.is_start == is_folded:
                        raise FileError("{{answer}} and {{/answer}} stand around an answer, in this order")
                    is_folded = part.is_start
            text = "".join(_write(part, style, line) for part in found)
            lines.append(LESSON_LINK.sub(lambda link: style.lesson_link(int(link[1])), text))
        except PellucidError as error:
            place = f"{page.path}:{section.line + offset}"
            raise FileError(
                f"{place}: {' '.join(REFERENCE.findall(line)) or line.strip()}: {error}"
            ) from None
    if is_folded:
        raise FileError(
            f"{page.path}:{section.line}: {section.title}: {{{{answer}}}} has no {{{{/answer}}}}."
        )
    return "\n".join(lines).strip("\n")


def _resolve_line(line: str, references: References, is_code: bool) -> Iterator[str | Resolved]:
    """Yields the text of a line and what its references mean."""
    for piece in [line] if is_code else PIECES.split(line):
        parts = REFERENCE.split(piece)
        for i, part in enumerate(parts):
            if i % 2 == 0:
                if part.strip() or (part and len(parts) > 1):
                    yield part
                continue
            found = references.resolve(part)
            inside = is_code or piece.startswith("`")
            yield PageNumber(found.text) if inside and isinstance(found, PageCode) else found


def _write(part: str | Resolved, style: PageStyle, line: str) -> str:
    match part:
        case str():
            return part
        case PageNumber():
            return style.number(part)
        case PageNumbers(numbers):
            return f"({', '.join(map(style.number, numbers))})"
        case PageCode(text):
            text = style.code(text)
            return f"`{text.replace('|', chr(92) + '|') if line.startswith('|') else text}`"
        case PageAnswer(number):
            return style.answer(_write(number, replace(style, number=lambda number: number.text), line))
        case PageTable():
            return write_table(part, style)
        case PageFold(is_start):
            return style.fold[0 if is_start else 1]
        case PagePicture():
            return style.picture(part)
        case PageSheet():
            return style.sheet(part)


def write_table(table: PageTable, style: PageStyle) -> str:
    """Returns a table in Markdown, numbers to the right."""
    head, *body = ([style.number(cell).replace("|", "\\|") for cell in row] for row in table.rows)
    rows = [head, ["---", *["---:"] * (len(head) - 1)], *body]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


# ---- the whole lesson as one document


def format_command(lesson: Lesson, level: int, name: str = "") -> str:
    """Returns the command that writes a sheet of a level, as a file in which answers can be typed; `name`
    chooses among several sheets."""
    names = [head.name for head in lesson.page.head.sheet]
    part = names.index(name) + 1 if name else 1
    several = len(names) > 1 and level < 3
    option, file = (f" --part {part}", f"{level}-{part}") if several else ("", f"{level}")
    number = lesson.number
    return f"pellucid sheet lesson-{number} --level {level}{option} -o lesson-{number}-{file}.md"


def write_worked_sheet(lesson: Lesson, name: str = "") -> str:
    """Returns the sheet of level 0 as Markdown; `name` chooses among several."""
    names = [head.name for head in lesson.page.head.sheet]
    return "\n".join(write_steps(make_sheets(lesson, 0)[names.index(name) if name else 0]))


def write_steps(sheet: Sheet) -> Iterator[str]:
    """Yields a worked sheet as Markdown: for each step its formula, and each number with its arithmetic."""
    for step in lay_out_steps(sheet, key=True):
        yield f"**{step.title[:1].upper()}{step.title[1:]}**: `{step.formula}`\n"
        for line in step.lines:
            work = f" = {line.work}" if line.work and line.work != line.answer else ""
            yield f"- `{line.symbol}{work} = {line.answer}`"
        yield ""


def make_style(lesson: Lesson) -> PageStyle:
    """Returns how a document looks: links to the documents and pictures beside it."""
    return PageStyle(
        lesson_link=lambda number: _link(find_lesson(number), f"lesson {number}"),
        picture=lambda picture: f"![{_alternative(picture)}]({_picture_file(lesson, picture.name)})",
        sheet=lambda reference: describe_sheet(lesson, reference),
    )


def describe_sheet(lesson: Lesson, reference: PageSheet) -> str:
    """Returns what a page says of a sheet: a worked one whole, of any other how to get it."""
    if reference.level == 0:
        return write_worked_sheet(lesson, reference.name)
    words = LEVELS[reference.level]
    command = format_command(lesson, reference.level, reference.name)
    return f"{words[0].upper()}{words[1:]}:\n\n```sh\n{command}\n```"


def _link(lesson: Lesson, text: str) -> str:
    return f"[{text}]({lesson.name}.md)"


def _alternative(picture: PagePicture) -> str:
    return (picture.figure.alt or picture.figure.title).replace("[", "(").replace("]", ")").replace("\n", " ")


def _picture_file(lesson: Lesson, name: str) -> str:
    return f"{lesson.name}-{name.replace(' ', '-')}.svg"


def write_document(lesson: Lesson, code: str = "../..") -> Iterator[str]:
    """Yields the parts of a lesson's document; `code` is the path from it to the repository."""
    page, style = lesson.page, make_style(lesson)
    yield f"# Lesson {lesson.number}: {lesson.title}\n"
    yield f"{page.head.goal}\n"
    if page.head.needs:
        needed = map(find_lesson, page.head.needs)
        yield f"Needs {', '.join(_link(one, f'lesson {one.number}, {one.title}') for one in needed)}.\n"
    for title in SECTIONS:
        yield f"## {title}\n"
        yield render_section(page, page.section(title), lesson.references, style) + "\n"
    yield "## Sheets and code\n"
    yield "\n".join(_list_sheets(lesson)) + "\n"
    file = f"pellucid/learning/lessons/{lesson.part}/{lesson.name}.py"
    program = f"[{lesson.name}.py]({code}/{file})"
    yield f"The numbers of this page are those of {program}; the operations are {_link_code(lesson, code)}.\n"


def _list_sheets(lesson: Lesson) -> Iterator[str]:
    for level, words in LEVELS.items():
        names = [head.name for head in lesson.page.head.sheet] if level < 3 else [""]
        for name in names:
            what = f"{name}, {words}" if name else words
            yield f"- {what}: `{format_command(lesson, level, name)}`"


def _link_code(lesson: Lesson, code: str) -> str:
    root = FOLDER.parents[2]
    files = {name: Path(inspect.getsourcefile(find_op(name).forward) or "") for name in lesson.page.head.code}
    links = [f"[{name}]({code}/{file.relative_to(root).as_posix()})" for name, file in files.items()]
    return ", ".join(links) or "those of its formulas"


def write_pictures(lesson: Lesson) -> dict[str, str]:
    """Returns the lesson's pictures as SVG, by the name of their files."""
    figures = lesson.program.pictures
    return {_picture_file(lesson, name): write_svg(figure).decode() for name, figure in figures.items()}

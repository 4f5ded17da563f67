"""A whole lesson as one Markdown document, with its pictures as files beside it."""

import inspect
from collections.abc import Iterator
from pathlib import Path

from pellucid.learning.lessons.ladder import FOLDER, Lesson, find_lesson, make_sheets
from pellucid.learning.lessons.page import SECTIONS
from pellucid.learning.lessons.placeholders import PagePicture, PageSheet
from pellucid.learning.lessons.render import PageStyle, render_section
from pellucid.learning.sheets.layout import lay_out_steps
from pellucid.learning.sheets.sheet import LEVELS, Sheet
from pellucid.reference.ops import find_op
from pellucid.report.svg import write_svg


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

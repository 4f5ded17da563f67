"""A lesson as text for a terminal: whole for a pipe, or by sections with covered numbers."""

import re
import textwrap
from collections.abc import Callable, Iterator

from pellucid.learning.lessons.document import FENCE, PIECES, PageStyle, describe_sheet, render_section
from pellucid.learning.lessons.ladder import Lesson, find_lesson
from pellucid.learning.lessons.page import SECTIONS
from pellucid.learning.lessons.placeholders import PageNumber, PagePicture
from pellucid.report.text import write_text as write_figure

LEAST_CHART = 20
"""The narrowest chart in columns, besides its axis."""
HIDDEN = "(an answer is hidden here; --answers shows it)"
HIDDEN_FROM, HIDDEN_TO = "<!-- answer -->", "<!-- /answer -->"
"""The lines around a longer answer that is not shown."""


def make_terminal_style(
    lesson: Lesson,
    width: int,
    shows_answers: bool,
    number: Callable[[PageNumber], str] = lambda number: number.text,
    mask: Callable[..., str] = lambda text, keeps_width=False: text,
) -> PageStyle:
    """Returns how a lesson looks in a terminal of this width; `number` may cover a number, and `mask` the
    numbers in a picture or in an arithmetic."""

    def draw(picture: PagePicture) -> str:
        lines = write_figure(picture.figure, max(LEAST_CHART, min(width, 80) - 16))
        return "\n".join(("```text", *(mask(line, keeps_width=True) for line in lines), "```"))

    return PageStyle(
        lesson_link=lambda other: f"lesson {find_lesson(other).number}",
        picture=draw,
        sheet=lambda reference: describe_sheet(lesson, reference),
        number=number,
        code=mask,
        answer=(lambda text: f"Answer: {text}") if shows_answers else (lambda text: HIDDEN),
        fold=("Answer:\n", "") if shows_answers else (HIDDEN_FROM, HIDDEN_TO),
    )


def write_section(lesson: Lesson, title: str, style: PageStyle, width: int) -> Iterator[str]:
    """Yields the lines of one section, without its heading."""
    page = lesson.page
    text = render_section(page, page.section(title), lesson.references, style)
    yield from lay_out(_hide(text), width)


def _hide(text: str) -> str:
    """Returns the text with a remark in the place of each longer answer that is not shown."""
    shown, is_hidden = list[str](), False
    for line in text.split("\n"):
        if line == HIDDEN_FROM:
            is_hidden = True
            shown.append(HIDDEN)
        elif line == HIDDEN_TO:
            is_hidden = False
        elif not is_hidden:
            shown.append(line)
    return "\n".join(shown)


def write_heading(lesson: Lesson) -> Iterator[str]:
    """Yields the title of a lesson, its goal and what it needs."""
    head = lesson.page.head
    yield f"Lesson {lesson.number}: {lesson.title}"
    yield head.goal
    if head.needs:
        yield f"Needs lesson{'s' * (len(head.needs) > 1)} {', '.join(map(str, head.needs))}."


def write_text(lesson: Lesson, width: int, shows_answers: bool = False) -> Iterator[str]:
    """Yields a whole lesson as plain text; nothing is covered."""
    style = make_terminal_style(lesson, width, shows_answers)
    for line in write_heading(lesson):
        yield from lay_out(line, width)
    for title in SECTIONS:
        yield from ("", title.upper(), "")
        yield from write_section(lesson, title, style, width)


_BOLD = re.compile(r"\*\*(.+?)\*\*")
_ITALIC = re.compile(r"(?<![\w*])\*([^*\s][^*]*?)\*(?![\w*])")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_WORDS = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")
"""The words of a command, what stands in quotes being part of one."""
_ITEM = re.compile(r"( *)([-*]|\d+\.) +")


# ---- Markdown as plain text: paragraphs wrapped, tables aligned, code as it is


def lay_out(markdown: str, width: int) -> Iterator[str]:
    """Yields Markdown as lines of plain text of at most `width` columns: paragraphs wrapped, tables aligned,
    code as it is."""
    lines, paragraph = iter(markdown.split("\n")), list[str]()

    def wrap() -> Iterator[str]:
        if paragraph:
            item = _ITEM.match(paragraph[0])
            indent = " " * (len(item[0]) if item else len(paragraph[0]) - len(paragraph[0].lstrip()))
            text = " ".join(line.strip() for line in paragraph)
            first = item[1] if item else indent
            yield from textwrap.wrap(
                first + _plain(text),
                max(width, 20),
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
            paragraph.clear()

    table = list[str]()
    for line in lines:
        if table and not line.startswith("|"):
            yield from _align(table, width)
            table.clear()
        if FENCE.match(line):
            yield from wrap()
            is_command = line.strip() == "```sh"
            for code in lines:
                if FENCE.match(code):
                    break
                yield from _wrap_code(code, width, is_command)
        elif line.startswith("|"):
            yield from wrap()
            table.append(line)
        elif not line.strip():
            yield from wrap()
            yield ""
        elif _ITEM.match(line):
            yield from wrap()
            paragraph.append(line)
        else:
            paragraph.append(line)
    yield from wrap()
    yield from _align(table, width)


def _wrap_code(code: str, width: int, is_command: bool) -> Iterator[str]:
    """Yields a line of code, in several where it does not fit; a command goes on after a backslash."""
    if len(code) + 4 <= width:
        yield f"    {code}".rstrip()
        return
    end = " \\" if is_command else ""
    pieces = _WORDS.findall(code) if is_command else code.split()
    rest, indent = "", " " * (4 + len(code) - len(code.lstrip()))
    for piece in pieces:
        joined = f"{rest} {piece}" if rest else piece
        if rest.strip() and len(indent + joined + end) > width:
            yield f"{indent}{rest}{end}"
            rest, indent = piece, "        "
        else:
            rest = joined
    yield f"{indent}{rest}"


def _plain(text: str) -> str:
    """Returns a line without the marks of Markdown; what stands in code stays as it is."""
    codes = [piece.strip("`") for piece in PIECES.split(text)[1::2]]
    text = _LINK.sub(r"\1", PIECES.sub("\0", text))
    text = _ITALIC.sub(r"\1", _BOLD.sub(r"\1", text))
    rest = iter(codes)
    return re.sub("\0", lambda _: next(rest), text)


def _align(table: list[str], width: int) -> Iterator[str]:
    """Yields the rows of a table; columns that do not fit beside each other follow below."""
    if not table:
        return
    rows = [
        [_plain(cell.strip().replace("\\|", "|")) for cell in re.split(r"(?<!\\)\|", row.strip()[1:-1])]
        for row in table
        if not re.fullmatch(r"[|:\- ]+", row.strip())
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    is_right = ["---:" in cell for cell in table[1].strip()[1:-1].split("|")] if len(table) > 1 else []
    columns, first = list(range(1, len(widths))), True
    while columns or first:
        shown = [0]
        while columns and (len(shown) == 1 or sum(widths[i] + 2 for i in (*shown, columns[0])) <= width):
            shown.append(columns.pop(0))
        yield from [] if first else [""]
        for row in rows:
            cells = [row[i].rjust(widths[i]) if is_right[i] else row[i].ljust(widths[i]) for i in shown]
            yield ("  " + "  ".join(cells)).rstrip()
        first = False

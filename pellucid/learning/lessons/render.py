"""A section of a page with its references filled in, as Markdown."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pellucid.base.errors import FileError, PellucidError
from pellucid.learning.lessons.page import LESSON_LINK, REFERENCE, Page, PageSection
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

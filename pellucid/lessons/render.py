"""A page with its references filled in: Markdown for a file, or plain text for a terminal."""

import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pellucid.errors import FileError, PellucidError
from pellucid.lessons.page import LESSON_LINK, REFERENCE, Page, PageSection
from pellucid.lessons.reference import (
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

_PIECES = re.compile(r"(`[^`]*`)")
_FENCE = re.compile(r" *```")


@dataclass(frozen=True)
class PageStyle:
    """How the parts of a page look; what is not given is Markdown."""

    lesson_link: Callable[[int], str]
    """Returns the link to another lesson; raises where there is none of that number."""
    picture: Callable[[PagePicture], str]
    sheet: Callable[[PageSheet], str]
    number: Callable[[PageNumber], str] = lambda number: number.text
    answer: Callable[[str], str] = lambda text: f"<details><summary>Answer</summary>{text}</details>"
    fold: tuple[str, str] = ("<details><summary>Answer</summary>\n", "\n</details>")
    """The lines around a longer answer."""


def render_section(page: Page, section: PageSection, references: References, style: PageStyle) -> str:
    """Returns a section as Markdown without its heading; a reference that names nothing is a FileError with
    its file and line."""
    lines, is_code, is_folded = list[str](), False, False
    for offset, line in enumerate(section.text.split("\n"), 1):
        try:
            if _FENCE.match(line):
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
    for piece in [line] if is_code else _PIECES.split(line):
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


# ---- plain text

_BOLD = re.compile(r"\*\*(.+?)\*\*|(?<![\w*])\*([^*\s][^*]*?)\*(?![\w*])")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_ITEM = re.compile(r"( *)([-*]|\d+\.) +")


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
            yield from _align(table)
            table.clear()
        if _FENCE.match(line):
            yield from wrap()
            for code in lines:
                if _FENCE.match(code):
                    break
                yield f"    {code}".rstrip()
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
    yield from _align(table)


def _plain(text: str) -> str:
    text = _LINK.sub(r"\1", text)
    pieces = _PIECES.split(text)
    return "".join(
        piece.strip("`") if i % 2 else _BOLD.sub(lambda bold: bold[1] or bold[2], piece)
        for i, piece in enumerate(pieces)
    )


def _align(table: list[str]) -> Iterator[str]:
    if not table:
        return
    rows = [
        [_plain(cell.strip().replace("\\|", "|")) for cell in re.split(r"(?<!\\)\|", row.strip()[1:-1])]
        for row in table
        if not re.fullmatch(r"[|:\- ]+", row.strip())
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    numeric = "---:" in table[1] if len(table) > 1 else False
    for row in rows:
        cells = [
            cell.rjust(width) if numeric and i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield ("  " + "  ".join(cells)).rstrip()

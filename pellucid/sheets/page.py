"""The pages of a worksheet: Markdown and HTML, the student's copy and the answer key."""

from collections.abc import Iterator
from html import escape
from itertools import groupby

from pellucid.sheets.blanks import format_blank
from pellucid.sheets.sheet import Sheet


def write_markdown(sheet: Sheet, key: bool = False) -> str:
    """Returns the Markdown page of a sheet, with the answers that it holds."""
    return "\n".join(_markdown_lines(sheet, key))


def _markdown_lines(sheet: Sheet, key: bool) -> Iterator[str]:
    yield f"# {sheet.title}\n"
    yield from (f"- {given.symbol} is {given.text}" for given in sheet.given.values())
    numbered = enumerate(sheet.boxes, 1)
    for step, boxes in groupby(numbered, lambda one: one[1].step):
        yield f"\n## {step}\n"
        for number, box in boxes:
            yield "- " + format_blank(number, box.symbol, box.shown or sheet.answers.get(box.key, ""))


def write_html(sheet: Sheet, code: str, key: bool = False) -> str:
    """Returns the HTML page of a sheet."""
    head = '<!doctype html>\n<meta name="generator" content="pellucid sheet">\n'
    return f"{head}<pre>{escape(write_markdown(sheet, key))}</pre>\n"

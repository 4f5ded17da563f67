"""The pages of a worksheet: Markdown and HTML, the student's copy and the answer key.

The HTML page has no script and asks nothing of the network; it prints on A4 and Letter.
"""

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

from pellucid.learning.sheets.blanks import format_blank
from pellucid.learning.sheets.layout import (
    AnswerLine,
    NumberList,
    NumberTable,
    StepSection,
    describe_run,
    lay_out_given,
    lay_out_steps,
    to_line,
)
from pellucid.learning.sheets.sheet import Sheet
from pellucid.report.page import make_page, read_style

TASKS = {
    "compute": "Compute each numbered box from the given numbers and the boxes before it. Round each answer "
    "to the decimals that its step asks for, and go on with the rounded number.",
    "sign": "Give the sign of each number, from the given numbers and its formula: 1 above zero, -1 below, "
    "0 for zero. Most can be seen without the number itself.",
    "find": "Every box is worked out, and one of them is not what its formula says; those after it go on "
    "from its number. Give the number of that box.",
}
"""What is asked, by the form of the boxes."""
WORKED = "Every box is worked out; recompute each line from the numbers that it reads."
HALF_LINE, BOX_LENGTH = 30, 14
"""Letters above which a box has a line of the page to itself, and those that an empty box takes."""


def _title(sheet: Sheet, key: bool) -> str:
    return f"{to_line(sheet.title)}{': answer key' if key else ''}"


def _task(sheet: Sheet, key: bool) -> str:
    forms = [box.form for box in sheet.boxes if not box.shown and not key]
    return TASKS.get(forms[0], TASKS["compute"]) if forms else WORKED


def _section_title(section: StepSection) -> str:
    return f"{section.title} ({section.name})" if section.name else section.title


# ---- Markdown


def write_markdown(sheet: Sheet, key: bool = False, name: str = "FILE.md") -> str:
    """Returns the Markdown page of a sheet with the answers that it holds; `name` is that of its file."""
    return "\n".join(_markdown_lines(sheet, key, name))


def _markdown_lines(sheet: Sheet, key: bool, name: str) -> Iterator[str]:
    yield f"# {_plain(_title(sheet, key))}\n"
    for word, text in describe_run(sheet):
        yield f"- {word}: {_code(text)}"
    yield f"\n{_task(sheet, key)}\n\n## Given"
    for block in lay_out_given(sheet):
        yield (
            f"\n**{_plain(block.symbol)}** {_plain(block.about)}\n" if block.symbol else f"\n{block.about}\n"
        )
        yield from _markdown_table(block) if isinstance(block, NumberTable) else _markdown_list(block)
    phase = ""
    for section in lay_out_steps(sheet, key):
        if section.phase not in ("", phase):
            phase = section.phase
            yield f"\n## {_plain(phase)}"
        yield f"\n### {_plain(_section_title(section))}\n"
        asked = f" ({section.asked})" if section.asked else ""
        yield f"{_code(section.formula)}{asked}" if section.formula else asked.strip()
        yield f"for example {_code(section.example)}\n" if section.example else ""
        for line in section.lines:
            yield "- " + _plain(format_blank(line.number, line.symbol, line.answer, line.work))
        for check in section.checks:
            yield f"\nCheck: {_plain(check)}"
    if _task(sheet, key) != WORKED:
        yield f"\n---\nType each answer in place of its blank, and run `pellucid mark {name}`."


def _markdown_table(table: NumberTable) -> Iterator[str]:
    rows = [("", *table.columns), *((label, *texts) for label, texts in table.rows)]
    rows = [tuple(_plain(text).replace("|", "\\|") for text in row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for i, row in enumerate(rows):
        yield "| " + " | ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) + " |"
        if i == 0:
            yield "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|"


def _markdown_list(numbers: NumberList) -> Iterator[str]:
    yield ",  ".join(f"{_plain(symbol)} = {text}" for symbol, text in numbers.items)


def _plain(text: str) -> str:
    """Returns a text that Markdown prints as it is, as far as a reader of the source is not disturbed."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("`", "'")


def _code(text: str) -> str:
    return f"`{text.replace('`', chr(39))}`"


# ---- HTML


def write_html(sheet: Sheet, code: str, key: bool = False, file: str = "") -> str:
    """Returns the HTML page of a sheet; `code` is its short code, by which its file is found again.

    With the sheet's `file`, its JSON, boxes become fields, whose answers are saved as such a file."""
    here = Path(__file__).parent
    has_fields = bool(file) and _task(sheet, key) != WORKED and not key
    return make_page(
        "pellucid sheet",
        _title(sheet, key),
        _task(sheet, key),
        "\n".join(_html_lines(sheet, code, key)),
        style=read_style(here / "page.css"),
        script=read_style(here / "page.js") if has_fields else "",
        data={"file": file, "name": f"sheet-{code}.json"},
    )


def _html_lines(sheet: Sheet, code: str, key: bool) -> Iterator[str]:
    rows = [*describe_run(sheet), ("sheet", code)]
    yield f"<dl>{''.join(f'<div><dt>{word}</dt><dd>{escape(text)}</dd></div>' for word, text in rows)}</dl>"
    yield "<h2>Given</h2>"
    yield '<div class="given">'
    for block in lay_out_given(sheet):
        yield from _html_table(block) if isinstance(block, NumberTable) else _html_list(block)
    yield "</div>"
    phase = ""
    for section in lay_out_steps(sheet, key):
        if section.phase not in ("", phase):
            phase = section.phase
            yield f"<h2>{escape(phase)}</h2>"
        yield f"<section{' class=short' if len(section.lines) <= 12 else ''}>"
        yield f"<header><h3>{escape(_section_title(section))}</h3>"
        asked = f' <span class="asked">{escape(section.asked)}</span>' if section.asked else ""
        yield f'<p class="formula">{_typeset(section.formula)}{asked}</p>'
        if section.example:
            yield f'<p class="formula">for example {_typeset(section.example)}</p>'
        yield "</header>"
        yield '<ol class="boxes">'
        yield from map(_html_line, section.lines)
        yield "</ol>"
        for check in section.checks:
            yield f'<p class="check">Check: {_typeset(check)}</p>'
        yield "</section>"
    yield f"<footer>{_html_end(sheet, code, key)}</footer>"


def _html_line(line: AnswerLine) -> str:
    length = len(line.symbol) + len(line.work) + (len(line.answer) or BOX_LENGTH)
    wide = ' class="wide"' if length > HALF_LINE else ""
    work = f" = {_typeset(line.work)}" if line.work else ""
    answer = (
        f"<b>{_number(line.answer)}</b>"
        if line.answer
        else f'<span class="box" data-key="{escape(line.key)}"></span>'
    )
    return (
        f'<li{wide}><span class="number">{line.number}</span> <span>{_typeset(line.symbol)}{work} '
        f'<span class="answer">= {answer}</span></span></li>'
    )


def _html_table(table: NumberTable) -> Iterator[str]:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    yield f'<div class="table">{_html_caption(table)}<table><tr><th></th>{head}</tr>'
    for label, texts in table.rows:
        yield f"<tr><th>{escape(label)}</th>{''.join(f'<td>{_number(text)}</td>' for text in texts)}</tr>"
    yield "</table></div>"


def _html_caption(block: NumberTable | NumberList) -> str:
    symbol = f"<b>{_typeset(block.symbol)}</b> " if block.symbol else ""
    return f'<p class="caption">{symbol}{escape(block.about)}</p>'


def _html_list(numbers: NumberList) -> Iterator[str]:
    yield f'<div class="list">{_html_caption(numbers)}<ul>'
    for symbol, text in numbers.items:
        yield f"<li>{_typeset(symbol)} = {_number(text)}</li>"
    yield "</ul></div>"


def _html_end(sheet: Sheet, code: str, key: bool) -> str:
    if key:
        return f"The answer key of sheet <code>{code}</code>."
    if _task(sheet, key) == WORKED:
        return f"Sheet <code>{code}</code>."
    write = "the command that made this page, with <code>-o FILE.md</code>, writes it"
    if sheet.lesson is not None:
        given = {"level": sheet.level, "seed": sheet.seed or None, "part": sheet.source.get("part")}
        options = "".join(f" --{name} {value}" for name, value in given.items() if isinstance(value, int))
        form = next((box.form for box in sheet.boxes if not box.shown), "compute")
        options += f" --form {form}" if form != "compute" else ""
        command = f"pellucid sheet lesson-{sheet.lesson}{options} -o FILE.md"
        write = f"<code>{command}</code> writes it"
    return (
        f"To have sheet <code>{code}</code> marked, save the answers that you typed here, or type them into "
        f"its Markdown file ({write}), and run <code>pellucid mark FILE</code>."
    )


def _number(text: str) -> str:
    return escape(text).replace("-", "−")


_SCRIPT = re.compile(
    r"(?<=[^\W\d_])_(?P<sub>\w+'*)|\^(?P<sup>\([^()]*\)|[-−]?[\w.]+(?:'|\[[^\[\]]*\])*)|(?P<minus>(?<![^\W\d_])-(?=[\w(√\s]))"
)


def _typeset(text: str) -> str:
    """Returns a formula with W_Q and e^x as sub- and superscripts.

    >>> _typeset("P = e^S[t,s] / W_Q")
    'P = e<sup>S[t,s]</sup> / W<sub>Q</sub>'
    """

    def place(found: re.Match[str]) -> str:
        if found["sub"]:
            return f"<sub>{found['sub']}</sub>"
        if found["minus"]:
            return "−"
        return f"<sup>{_typeset_inner(found['sup'])}</sup>"

    return _SCRIPT.sub(place, escape(text, quote=False))


def _typeset_inner(text: str) -> str:
    inner = text[1:-1] if text.startswith("(") and text.endswith(")") else text
    return re.sub(r"(?<=[^\W\d_])_(\w+'*)", r"<sub>\1</sub>", inner).replace("-", "−")

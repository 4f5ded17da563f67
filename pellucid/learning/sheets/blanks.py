"""The lines of a Markdown sheet that are read again: those on which a person answers, and that of its data.

`(3) P[1,0] = ____`: the number in parentheses says which box it is. Reading survives reflowed lines, table
bars, emphasis, and work shown before the answer: what counts is the text after the last equals sign.

`<!-- pellucid-sheet CHECKSUM BASE64 -->`: the data is compressed, so that the file is the page; the checksum
says whether the line is whole.
"""

import base64
import binascii
import hashlib
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pellucid.base.files import Damaged, need
from pellucid.learning.sheets.sheet import Sheet

BLANK = "____"
_STARTS_BLOCK = re.compile(r"\s*([-*+>|#]|\(\d+\)|```|<!--|$)")
_NUMBERED = re.compile(r"[\s\-*+>|_`]*\(\s*(\d{1,4})\s*\)[\s*_`]*")
_INNER_NUMBER = re.compile(
    r"(?<![-*+|\s])[-*+|]*+\s(?P<lead>[-*+|\s]*+)\((?P<number>\d{1,4})\)(?=(?P<space>\s++))"
)
"""The number of a box after another one's answer; it begins where a run of blanks and list marks does, not at
each of them."""
_REMARK = re.compile(
    r"(?P<number>[-+−]?\d[\d.,]*(?:e[-+−]?\d+)?)\s+(?!(?:ln|log|exp|sqrt|pi|percent)\b)(?:[^\W\d]{2,}|\(|\?).*",
    re.IGNORECASE,
)
"""A number, and words after it: a unit, or what the person thought of it."""


def format_blank(number: int, symbol: str, answer: str = "", work: str = "") -> str:
    """Returns the line of a box.

    >>> format_blank(3, "P[1,0]"), format_blank(3, "P[1,0]", "0.25", "1 / 4")
    ('(3) P[1,0] = ____', '(3) P[1,0] = 1 / 4 = 0.25')
    """
    return " = ".join(filter(None, (f"({number}) {symbol}", work, answer or BLANK)))


def read_blanks(text: str, sheet: Sheet) -> dict[str, str]:
    """Returns the answers that stand on the lines of the boxes, by key; without those left blank. Raises
    `Damaged` for the answer of a box that is not on the sheet."""
    answers = {}
    for line in _join_lines(text):
        for part in _split_boxes(line, sheet):
            if not (found := _NUMBERED.match(part)):
                continue
            if not 0 < int(found[1]) <= len(sheet.boxes):
                is_answer = "=" in part and _clean(part[found.end() :], "")
                need(not is_answer, f"it answers box ({found[1]}), which is not on the sheet")
                continue
            box = sheet.boxes[int(found[1]) - 1]
            if not box.shown and (answer := _clean(part[found.end() :], box.symbol)):
                answers[box.key] = answer
    return answers


def fill_blanks(text: str, sheet: Sheet, answers: Mapping[str, str]) -> str:
    """Returns the text with answers in the blanks of their boxes, and all else as it is."""
    for number, box in enumerate(sheet.boxes, 1):
        if answer := answers.get(box.key):
            start = format_blank(number, box.symbol).removesuffix(BLANK)
            text = text.replace(f"{start}{BLANK}", f"{start}{answer}", 1)
    return text


def _join_lines(text: str) -> Iterator[str]:
    """Yields paragraphs, list items and table rows, each with its continuation lines on one line."""
    held: list[str] = []
    for line in text.replace("\\", "").splitlines():
        if _STARTS_BLOCK.match(line):
            yield " ".join(held)
            held = [line] if line.strip() else []
        else:
            held.append(line.strip() if held else line)
    yield " ".join(held)


def _split_boxes(line: str, sheet: Sheet) -> list[str]:
    """Returns the parts of a line onto which several boxes were joined: a number and its own symbol."""
    cuts = [0]
    for found in _INNER_NUMBER.finditer(line):
        number, end = int(found["number"]), found.end("space")
        if 0 < number <= len(sheet.boxes) and line.startswith(sheet.boxes[number - 1].symbol, end):
            cuts.append(found.start("lead"))
    return [line[start:end] for start, end in zip(cuts, [*cuts[1:], None], strict=True)]


def _clean(text: str, symbol: str) -> str:
    """Returns the answer in what stands after a box's number; empty where nothing was filled in."""
    text = text.removeprefix(symbol).rpartition("=")[2].replace("_", " ").strip(" \t|*`;~$≈")
    found = _REMARK.fullmatch(text)
    return found["number"] if found else text


# ---- the data

MARK = "pellucid-sheet"
MOST_BYTES = 4_000_000
"""The size of a sheet's file, and of the data in its line."""
CHECKSUM_LETTERS = 16

_COMMENT = re.compile(rf"^<!-- {MARK}\s(.*?)-->", re.DOTALL | re.MULTILINE)
_LINE = re.compile(rf"\s*([0-9a-f]{{{CHECKSUM_LETTERS}}})\s+([A-Za-z0-9+/=\s]*)")
AGAIN = "take a copy of the sheet as it was written, and put the answers there"


class DataLine(NamedTuple):
    """The data of a sheet as JSON text, and where the comment begins that it was read from."""

    text: str
    start: int


def write_data_line(text: str) -> str:
    """Returns the comment that holds a JSON text.

    >>> read_data_line("# A sheet\\n" + write_data_line("{}") + "\\n")
    DataLine(text='{}', start=10)
    """
    packed = zlib.compress(text.encode("utf-8", "backslashreplace"), 9)
    return f"<!-- {MARK} {_compute_checksum(packed)} {base64.b64encode(packed).decode()} -->"


def read_data_line(page: str) -> DataLine | None:
    """Returns the data of a Markdown page, None where it has no such comment; raises `Damaged` for a line
    that is not as it was written, or that would unpack to more than a sheet."""
    comments = list(_COMMENT.finditer(page))
    if not comments:
        return None
    found = comments[-1]
    line = _LINE.fullmatch(found[1])
    try:
        packed = base64.b64decode("".join(line[2].split()), validate=True) if line else b""
    except binascii.Error:
        line = None
    if line is None or _compute_checksum(packed) != line[1]:
        raise Damaged(f"the line of its data, `<!-- {MARK} … -->`, does not fit its checksum: {AGAIN}")
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(packed, MOST_BYTES + 1)
        need(len(data) <= MOST_BYTES, f"its data unpacks to more than {MOST_BYTES:,} bytes")
        need(unpacker.eof and not unpacker.unused_data, "its data is not one compressed text")
        return DataLine(data.decode("utf-8"), found.start())
    except (zlib.error, UnicodeDecodeError) as error:
        raise Damaged(f"its data cannot be unpacked ({error})") from None


def _compute_checksum(packed: bytes) -> str:
    return hashlib.sha256(packed).hexdigest()[:CHECKSUM_LETTERS]

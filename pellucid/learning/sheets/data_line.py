"""The line of a Markdown sheet that holds its data: `<!-- pellucid-sheet CHECKSUM BASE64 -->`.

The data is compressed, so that the file is the page; the checksum says whether the line is whole. Sheets of
version 0.1 have JSON in that comment, which is read as well.
"""

import base64
import binascii
import hashlib
import re
import zlib
from typing import NamedTuple

from pellucid.base.files import Damaged, need

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
    if found[1].lstrip().startswith("{"):
        return DataLine(found[1], found.start())
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

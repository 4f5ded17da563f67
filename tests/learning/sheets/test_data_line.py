"""The line of data is read as it was written, also where an editor wrapped it, or is one error."""

import base64
import hashlib
import textwrap
import zlib

import pytest

from pellucid.base.files import Damaged
from pellucid.learning.sheets.data_line import MOST_BYTES, read_data_line, write_data_line

TEXT = '{"title": "a → b -->", "numbers": [1, 2, 3]}'


def pack(packed: bytes) -> str:
    checksum = hashlib.sha256(packed).hexdigest()[:16]
    return f"<!-- pellucid-sheet {checksum} {base64.b64encode(packed).decode()} -->"


def test_a_text_comes_back_also_where_its_line_was_wrapped() -> None:
    line = write_data_line(TEXT)
    for page in (line, f"# A\n\n{line}\n", f"# A\n{textwrap.fill(line, 40, break_on_hyphens=False)}"):
        found = read_data_line(page)
        assert found is not None and found.text == TEXT and page[found.start :].startswith("<!--")


def test_a_page_without_a_line_has_no_data() -> None:
    assert read_data_line("# A sheet\n<!-- another comment -->\n") is None


def test_any_other_letter_in_the_line_is_found_by_its_checksum() -> None:
    line = write_data_line(TEXT)
    start = line.index("sheet ") + len("sheet ")
    for i in range(start, len(line) - 4):
        other = "A" if line[i] != "A" else "B"
        with pytest.raises(Damaged, match="checksum"):
            read_data_line(line[:i] + other + line[i + 1 :])


@pytest.mark.parametrize(
    ("packed", "fact"),
    [
        (zlib.compress(b" " * (MOST_BYTES + 1)), "more than 4,000,000 bytes"),
        (zlib.compress(b" " * 10**8, 9), "more than 4,000,000 bytes"),
        (zlib.compress(b"{}")[:-2], "not one compressed text"),
        (zlib.compress(b"{}") + b"more", "not one compressed text"),
        (zlib.compress(b"\xff"), "cannot be unpacked"),
        (b"no zlib", "cannot be unpacked"),
        (b"", "not one compressed text"),
    ],
    ids=range(7),
)
def test_a_line_that_unpacks_to_something_else_is_refused(packed: bytes, fact: str) -> None:
    with pytest.raises(Damaged, match=fact):
        read_data_line(pack(packed))

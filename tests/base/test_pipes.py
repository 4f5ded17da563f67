"""Lines between two processes: each is read whole or not at all."""

import io
import subprocess
import sys

import pytest

from pellucid.base.errors import UsageError
from pellucid.base.pipes import parse_table, read_lines


def test_a_line_that_is_too_long_is_read_to_its_end_and_cut() -> None:
    lines = list(read_lines(io.BytesIO(b"short\n" + b"x" * 50 + b"\nnext\nlast"), 10))
    assert lines == [b"short\n", b"x" * 11, b"next\n", b"last"]


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"{", b'{"a": NaN}', b'{"a": 1, "a": 2}', b"\xff", b"[" * 10**5]
)
def test_only_a_table_with_each_key_once_is_read(line: bytes) -> None:
    with pytest.raises(UsageError):
        parse_table(line, "a question", 10**6)


def test_a_table_that_is_too_long_is_refused_before_it_is_read() -> None:
    with pytest.raises(UsageError, match="3 bytes"):
        parse_table(b"{}  ", "a question", 3)


def test_nothing_that_a_library_prints_comes_between_two_lines() -> None:
    code = """
from pellucid.base.pipes import open_output
write = open_output()
write(b"a\\n")
print("noise", flush=True)
write(b"b\\n")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"a\nb\n", b"noise\n")

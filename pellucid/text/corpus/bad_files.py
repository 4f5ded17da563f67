"""Files of a corpus that cannot be read as text, all named in one error, and what to do with them."""

from collections.abc import Sequence
from typing import NamedTuple

from pellucid.base.errors import ConfigError, FileError, unknown

STOP, SKIP, REPLACE = CHOICES = ("stop", "skip", "replace")
"""Refuse the corpus; omit the file; put U+FFFD for bytes that are not UTF-8, and count them."""
SHOWN = 10
"""Files that are named in a message; the rest are counted."""
HEAD = 1 << 13
"""Bytes at the beginning of a file among which a 0 says that it is not text."""


class BadFile(NamedTuple):
    file: str
    reason: str
    """A sentence that names the file."""
    is_replaceable: bool
    """Whether `replace` would read it."""


class BadFilesError(FileError):
    """Every bad file of a corpus. `setting` is how the caller spells the choice: `data.on_bad_file=`."""

    def __init__(self, bad: Sequence[BadFile], files: int, setting: str) -> None:
        self.files = tuple(one.file for one in bad)
        reasons = [one.reason for one in bad[:SHOWN]]
        if len(bad) > SHOWN:
            reasons.append(f"and {len(bad) - SHOWN:,} more")
        ways = [f"{setting}{SKIP} omits such files"] if len(bad) < files else []
        if any(one.is_replaceable for one in bad):
            ways.append(f"{setting}{REPLACE} puts U+FFFD for bytes that are not UTF-8")
        remedy = "; ".join(ways)
        if files == 1:
            super().__init__(f"{reasons[0]} {remedy}{'.' * bool(ways)}".rstrip())
        else:
            lines = "\n".join(f"  {reason}" for reason in reasons)
            end = f"\nMend them, or choose: {remedy}." if ways else ""
            super().__init__(f"{len(bad):,} of {files:,} files cannot be read as text:\n{lines}{end}")


def check_choice(on_bad_file: str) -> None:
    if not isinstance(on_bad_file, str) or on_bad_file not in CHOICES:
        raise ConfigError(unknown("on_bad_file", on_bad_file, CHOICES))


def check_is_text(file: str, head: bytes) -> None:
    """Refuses binary files: those with a byte 0 near their beginning."""
    if b"\0" in head and head[:2] not in (b"\xff\xfe", b"\xfe\xff"):  # UTF-16 has a message of its own
        raise FileError(f"{file} is not text: byte {head.index(0)} is 0, as in programs and pictures.")


def list_names(bad: Sequence[BadFile]) -> str:
    """Returns the names of files for one line: "a.txt, b.txt and 3 more"."""
    more = f" and {len(bad) - SHOWN:,} more" if len(bad) > SHOWN else ""
    return ", ".join(one.file for one in bad[:SHOWN]) + more

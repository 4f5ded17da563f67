"""The key of a server: from a file that its owner alone can read, or from the environment.

An argument would be seen by every user of the machine. No message shows a key or a part of it.
"""

import os
import re
import stat
from pathlib import Path

from pellucid.base.errors import FileError, UsageError, file_errors

VARIABLE = "PELLUCID_API_KEY"
LEAST, MOST = 16, 256
"""The characters of a key."""
_KEY = re.compile(rf"[!-~]{{{LEAST},{MOST}}}")


def find_key(file: Path | None) -> str | None:
    """Returns the key of a file, else that of the environment; None where neither is given.

    It is removed from the environment, which the processes of a server would inherit."""
    given = os.environ.pop(VARIABLE, None)
    if file is not None:
        return read_key_file(file)
    return None if given is None else check_key_text(given, VARIABLE)


def read_key_file(path: Path) -> str:
    """Returns the key that a file has as its only line."""
    with file_errors("read", path):
        # a pipe is not waited for, and what is checked is what is read
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _check_file(path, os.fstat(opened))
            data = os.read(opened, MOST + 3)
        finally:
            os.close(opened)
    line = data.removesuffix(b"\n").removesuffix(b"\r")
    return check_key_text(line.decode("latin-1"), str(path))


def _check_file(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise FileError(f"{path} is not a regular file: a key file has the key as its only line.")
    if found.st_uid != os.geteuid():
        raise FileError(f"{path} belongs to another user, who knows the key: make a key file of your own.")
    if found.st_mode & 0o077:
        raise FileError(
            f"{path} has the mode {found.st_mode & 0o777:o}, so that other users can read or change the key: "
            f"run `chmod 600 {path}`."
        )


def check_key_text(text: str, origin: str) -> str:
    """Returns a key; raises, without showing it, where it is not one."""
    if _KEY.fullmatch(text):
        return text
    if len(text) > MOST:
        reason = "it is longer"
    elif len(text) < LEAST:
        reason = f"it has {len(text)}"
    else:
        reason = "it has another character"
    raise UsageError(
        f"{origin} must hold a key of {LEAST} to {MOST} printable ASCII characters without blanks; {reason}. "
        "`openssl rand -hex 32` prints a good one."
    )

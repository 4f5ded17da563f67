"""The lock of a run folder: one process at a time writes there, and its lock ends with it."""

import contextlib
import fcntl
import json
import os
import socket
import time
from pathlib import Path

from pellucid.base.errors import UsageError, file_error

PATIENCE = 0.3
"""Seconds: a process that only reads the status of a run holds its lock for a moment."""
_HANDLES: set[int] = set()


class FolderLock:
    """An open lock file, locked once `acquire` returns."""

    def __init__(self, path: Path) -> None:
        self.path, flags = path, os.O_RDWR | os.O_CREAT
        try:
            self._handle, self.is_new = os.open(path, flags | os.O_EXCL, 0o666), True
        except FileExistsError:
            self._handle, self.is_new = os.open(path, flags, 0o666), False
        _HANDLES.add(self._handle)

    def acquire(self) -> None:
        """Waits for the lock for a moment; refuses where another process has it."""
        folder, deadline = self.path.parent, time.monotonic() + PATIENCE
        while not _try_lock(self._handle, self.path, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise UsageError(
                    f"{folder} is in use by {self._describe_holder()}: wait for its end, or name another out."
                )
            time.sleep(PATIENCE / 20)
        if not self._is_current():  # its creator was refused, and has just removed it
            raise UsageError(f"{folder} was in use by another process until now: try again.")
        with contextlib.suppress(OSError):  # on a full disk the holder has no name, but still the lock
            os.ftruncate(self._handle, 0)
            holder = {"pid": os.getpid(), "host": socket.gethostname()}
            os.pwrite(self._handle, json.dumps(holder).encode(), 0)

    @property
    def is_open(self) -> bool:
        """False in a forked child, which has closed its copy."""
        return self._handle in _HANDLES

    def close(self) -> None:
        _HANDLES.discard(self._handle)
        os.close(self._handle)

    def _describe_holder(self) -> str:
        try:
            holder = json.loads(os.pread(self._handle, 4096, 0))
            return f"process {int(holder['pid'])} on {str(holder['host'])[:80]}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"

    def _is_current(self) -> bool:
        """Returns whether the open file is still the one at the path."""
        try:
            return os.path.samestat(os.fstat(self._handle), self.path.stat())
        except FileNotFoundError:
            return False


def is_locked(path: Path) -> bool:
    """Returns whether a process has the lock of this file."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _try_lock(handle, path, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def _try_lock(handle: int, path: Path, kind: int) -> bool:
    """Locks an open file; returns False where another process has it."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise file_error("lock", path, error) from None
    return True


def _close_inherited() -> None:
    """Closes the locks in a forked child, which would keep them after its parent was killed."""
    for handle in _HANDLES:
        os.close(handle)
    _HANDLES.clear()


os.register_at_fork(after_in_child=_close_inherited)

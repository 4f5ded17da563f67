"""A disk that fails at a chosen call, for a command that runs in a process of its own."""

import builtins
import contextlib
import errno
import io
import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from tests.half_written import HalfWritten

CALLS = (
    "open",
    "mkdir",
    "rename",
    "replace",
    "link",
    "symlink",
    "unlink",
    "remove",
    "rmdir",
    "fsync",
    "scandir",
    "listdir",
)
NEED_ROOM = ("mkdir", "create", "write", "link", "symlink", "fsync")


class Disk:
    """Counts the calls that reach files of the folder that the process works in, and lets one of them fail.

    The fault is the name of an error, which the call with the number `at` raises once; or `full`, from then
    on for whatever needs room; or `killed`: the process gets SIGKILL there.
    """

    def __init__(self, report: str, at: int = 0, fault: str = "") -> None:
        self.report, self.at, self.fault = report, at, fault
        self.calls: list[str] = []
        self.failed = ""
        self.folder = os.getcwd()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        from pellucid.base import files

        with contextlib.ExitStack() as stack:
            for name in CALLS:
                stack.enter_context(mock.patch.object(os, name, self._watched(name, getattr(os, name))))
            stack.enter_context(
                mock.patch.object(files, "_renameat2", self._watched("rename", files._renameat2))
            )
            opened = self._opened(io.open)
            stack.enter_context(mock.patch.object(io, "open", opened))
            stack.enter_context(mock.patch.object(builtins, "open", opened))
            yield
        partial = Path(f"{self.report}.partial")  # a kill from outside may come here, too
        partial.write_text(json.dumps({"calls": self.calls, "failed": self.failed}))
        partial.replace(self.report)

    def call(self, name: str) -> None:
        self.calls.append(name)
        if not self.at or len(self.calls) < self.at:
            return
        first = len(self.calls) == self.at
        if self.fault == "killed" and first:
            os.kill(os.getpid(), signal.SIGKILL)
        if first if self.fault != "full" else name in NEED_ROOM:
            self.failed = self.failed or name
            code = getattr(errno, "ENOSPC" if self.fault == "full" else self.fault)
            raise OSError(code, os.strerror(code))

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if self._is_ours(given[0] if given else "."):
                flags = given[1] if name == "open" and len(given) > 1 else 0
                self.call("create" if flags & os.O_CREAT else name)
            return real(*given, **named)

        return call

    def _opened(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, mode: str = "r", *given: Any, **named: Any) -> Any:
            if not self._is_ours(path):
                return real(path, mode, *given, **named)
            written = set(mode) & set("wax+")
            if not isinstance(path, int):
                self.call("create" if written else "open")
            file = real(path, mode, *given, **named)
            return HalfWritten(file, self.call) if written else file

        return call

    def _is_ours(self, path: Any) -> bool:
        if isinstance(path, int):
            return path > 2
        place = os.fsdecode(path)
        return not place.startswith("/") or place.startswith(self.folder)


# ---- what is written from Python, and a fetch without a network


def save_model() -> None:
    import pellucid

    pellucid.load("ours").save("new")


def save_pretrained() -> None:
    import pellucid

    pellucid.load("ours").save_pretrained("new")


def write_trace() -> None:
    import pellucid
    from pellucid.explanation.tracing import write_trace

    model = pellucid.load("ours")
    write_trace(model, model.trace("the cat sat in the inn"), Path("new.json"))


def fetch_from_hub() -> None:
    """The download brings a model that is here already."""
    import shutil

    from pellucid.formats import fetch

    def arrived(program: str, arguments: Sequence[str], *_: Any) -> tuple[int, str]:
        Path(arguments[1]).mkdir()
        for path in Path("hf").iterdir():
            shutil.copyfile(path, Path(arguments[1]) / path.name)
        return 0, ""

    fetch._download = arrived

"""A file on a disk that fails: of a write that fails the first half is written."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


class HalfWritten:
    """`call("write")` raises where the write is to fail."""

    def __init__(self, file: Any, call: Callable[[str], None]) -> None:
        self.file, self.call = file, call

    def write(self, data: Any) -> int:
        try:
            self.call("write")
        except BaseException:
            self.file.write(data[: len(data) // 2])
            with contextlib.suppress(OSError):
                self.file.flush()
            raise
        return int(self.file.write(data))

    def __enter__(self) -> "HalfWritten":
        self.file.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.file.__exit__(*error)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.file)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

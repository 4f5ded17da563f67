"""Why a GGUF file is not read: it is damaged, or it says something that this program does not do."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from pellucid.errors import ConfigError, FileError
from pellucid.files import validating


class NotSupported(Exception):
    """What a whole and healthy file asks for, and does not get; `opening` adds which file it is."""


def support(holds: bool, complaint: str) -> None:
    if not holds:
        raise NotSupported(complaint)


@contextlib.contextmanager
def opening(path: Path) -> Iterator[None]:
    """In this block everything that is wrong with a file is a FileError about it."""
    try:
        with validating(path):
            yield
    except NotSupported as error:
        raise FileError(f"{path} cannot be read here: {error}.") from None
    except ConfigError as error:
        raise FileError(f"{path} cannot be read here: {error}") from None

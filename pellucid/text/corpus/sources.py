"""Files that a user names: names, folders, patterns, or `-` for standard input.

A folder gives the texts in it and below it. Folders that Pellucid made (runs, token files, models) are not
text: below a folder they are skipped, and named themselves they are refused.
"""

import glob
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from pellucid.base.errors import FileError, file_error

STDIN = "-"
TEXTS = (".txt", ".md", ".jsonl")
PACKED = (".gz", ".xz", ".zst")
ENDINGS = tuple(text + packed for text in TEXTS for packed in ("", *PACKED))
"""What is read from a folder; a file called by its name is read whatever its ending."""
TOKENS = "pellucid-tokens"
"""The format that a manifest of token files names."""


def files(sources: Iterable[str | Path]) -> tuple[str, ...]:
    """Returns every file once: sources as given, folders and patterns in the order of their names."""
    found: dict[str, str] = {}
    for source in map(str, sources):
        for file in _matching(source):
            found.setdefault(file if file == STDIN else os.path.realpath(file), file)
    if not found:
        raise FileError("no text was named; name files, folders, patterns such as 'data/*.txt', or - .")
    return tuple(found.values())


def display_name(file: str) -> str:
    """Returns the name of a file in messages."""
    return "standard input" if file == STDIN else file


def is_jsonl(file: str) -> bool:
    """Returns whether the name says that its lines are JSON, packed or not."""
    return file.endswith(tuple(ending for ending in ENDINGS if ending.startswith(".jsonl")))


def _is_device(source: str) -> bool:
    """Returns whether the path is a character or block device, such as /dev/zero; a pipe is not one."""
    mode = os.stat(source).st_mode
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def _matching(source: str) -> list[str]:
    # A name that exists is that file, even where its name looks like a pattern.
    if source == STDIN or (os.path.exists(source) and not os.path.isdir(source)):
        if source != STDIN and _is_device(source):
            raise FileError(f"{source} is a device, not a text: it may never end. Use - for standard input.")
        return [source]
    if os.path.isdir(source):
        if kind := made_by_pellucid(source):
            raise FileError(
                f"{source} is a {kind}, not text. Name the text itself; files that lie there are read if "
                f"they are named, for example {os.path.join(source, '*.txt')!r}."
            )
        if inside := list(_inside(source)):
            return inside
        raise FileError(
            f"the folder {source} holds no text: no file in it ends in {' '.join(TEXTS)}, "
            f"packed as {' '.join(PACKED)} or not. Other files can be called by their names; folders of "
            "runs, token files and models are skipped."
        )
    if not glob.has_magic(source) or "\0" in source:
        raise FileError(f"there is no file or folder {source!r}.")
    matches = sorted(match for match in glob.glob(source, recursive=True) if os.path.isfile(match))
    if not matches:
        raise FileError(f"the pattern {source} matches no file; in a pattern ** stands for any folders.")
    return matches


def _inside(folder: str) -> Iterator[str]:
    for here, folders, names in os.walk(folder, onerror=_refuse):
        # Sorting in place sets the order of os.walk; hidden folders are not the user's text.
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and not made_by_pellucid(os.path.join(here, name))
        )
        for name in sorted(names):
            path = os.path.join(here, name)
            if name.endswith(ENDINGS) and not name.startswith(".") and not is_pipe(path):
                yield path


def made_by_pellucid(folder: str) -> str:
    """Returns what a folder is if Pellucid made it, such as "run folder"; empty where it did not.

    A run has a recipe beside its checkpoints or its log; token files have a manifest or the record of their
    progress, which says so; a model has a config beside weights.
    """

    def has(*names: str) -> bool:
        return any(os.path.exists(os.path.join(folder, name)) for name in names)

    if has("recipe.toml") and has("checkpoints", "log.jsonl"):
        return "run folder"
    if any(_says(os.path.join(folder, name), TOKENS) for name in ("manifest.json", "progress.json")):
        return "folder of token files"
    if has("config.json") and has("model.safetensors", "model.safetensors.index.json"):
        return "model folder"
    return ""


def _says(path: str, format: str) -> bool:
    """Returns whether the beginning of a JSON file names a format."""
    try:
        if not os.path.isfile(path):  # opening a pipe would wait
            return False
        with open(path, "rb") as file:
            return f'"{format}"'.encode() in file.read(64)
    except OSError:
        return False


def is_pipe(path: str) -> bool:
    """Returns whether it is a pipe or a device: opening it waits for a writer, and it can be read only
    once."""
    return os.path.exists(path) and not os.path.isfile(path)


def _refuse(error: OSError) -> None:
    # Left to itself, os.walk would leave out a folder that it may not open, without a word.
    raise file_error("read", f"the folder {error.filename}", error)

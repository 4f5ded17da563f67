"""A model's folder or file that may be there already: replaced only if asked, and only when all went well."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from pellucid.errors import FileError
from pellucid.interop.fetch import WANTED

PARTS = (*WANTED, "special_tokens_map.json")


@contextmanager
def fresh(output: Path, force: bool) -> Iterator[Path]:
    """Where to write so that `output` is made, or with `force` replaced.

    A folder is replaced only if there is nothing but a model in it.
    """
    try:
        there = output.exists() and not (output.is_dir() and not any(output.iterdir()))
        if there and not force:
            raise FileError(f"{output} is there already; --force replaces it (in Python, force=True).")
        if not there or not output.is_dir():
            output.parent.mkdir(parents=True, exist_ok=True)
            yield output
            return
        _must_be_a_model(output)
        aside = Path(tempfile.mkdtemp(prefix=f".{output.name}.", suffix=".partial", dir=output.parent))
        try:
            yield aside / "new"
            os.replace(output, aside / "old")
            os.replace(aside / "new", output)
        finally:
            if not output.exists() and (aside / "old").exists():  # stopped between the two renames
                os.replace(aside / "old", output)
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise FileError(f"cannot write {output}: {error.strerror or error}.") from None


def _must_be_a_model(folder: Path) -> None:
    others = [path.name for path in folder.iterdir() if not any(fnmatch(path.name, part) for part in PARTS)]
    if others or not (folder / "config.json").is_file():
        why = f"holds {min(others)}" if others else "has no config.json"
        raise FileError(f"{folder} {why}, so it is no model that could be replaced. Give another folder.")

"""A tokenizer's own folder: `tokenizer.json` and `tokenizer_config.json`, written whole or not at all."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.base.errors import FileError
from pellucid.base.files import Kind, new_folder, read_json, whole_file

if TYPE_CHECKING:
    from pellucid.text.tokenizer import Special

FORMAT = 1
"""The number of our own entry in `tokenizer_config.json`."""
FILE, SETTINGS = "tokenizer.json", "tokenizer_config.json"


def folder_files(
    tokenizer: str, special: "Special", kind: str, unknown: str | None = None
) -> dict[str, bytes]:
    """Returns the files of a tokenizer by name, as other programs expect them."""
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "pellucid": {"format": FORMAT, "kind": kind},
    }
    names = {
        "bos_token": special.bos,
        "eos_token": special.eos,
        "pad_token": special.pad,
        "unk_token": unknown,
    }
    config |= {key: name for key, name in names.items() if name is not None}
    settings = json.dumps(config, ensure_ascii=False, indent=2)
    return {FILE: f"{tokenizer}\n".encode(), SETTINGS: f"{settings}\n".encode()}


def write_folder(folder: Path, files: Mapping[str, bytes], force: bool) -> None:
    """Writes a new tokenizer folder; with `force` it replaces one that Pellucid wrote, and nothing else."""
    with new_folder(folder, TOKENIZER_FOLDER, force) as new:
        for name, data in files.items():
            with whole_file(new / name) as file:
                file.write(data)


def _why_not(path: Path) -> str:
    if not path.is_dir():
        return "it is a file"
    if others := sorted(entry.name for entry in path.iterdir() if entry.name not in (FILE, SETTINGS)):
        return f"it holds {others[0]}"
    try:
        settings = read_json(path / SETTINGS)
    except FileError:
        settings = None
    written_here = isinstance(settings, dict) and "pellucid" in settings and (path / FILE).is_file()
    return "" if written_here else "it is not a tokenizer that Pellucid wrote"


TOKENIZER_FOLDER = Kind("a tokenizer folder", _why_not)

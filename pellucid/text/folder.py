"""A tokenizer's folder: `tokenizer.json` and `tokenizer_config.json`, written whole or not at all."""

import json
from pathlib import Path
from typing import Any

from pellucid.errors import FileError
from pellucid.files import whole_file
from pellucid.text.tokenizer import Special

FORMAT = 1
"""The number of our own entry in `tokenizer_config.json`."""


def write_folder(
    folder: Path, tokenizer: str, special: Special, kind: str, unknown: str | None = None
) -> None:
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
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot write the tokenizer to {folder}: {error.strerror}.") from None
    for name, text in (
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", json.dumps(config, ensure_ascii=False, indent=2)),
    ):
        with whole_file(folder / name) as file:
            file.write(f"{text}\n".encode())


def special_of(config: dict[str, Any]) -> Special:
    """The special tokens that a `tokenizer_config.json` names, as text or as a table with a `content`."""

    def name(key: str) -> str | None:
        given = config.get(key)
        given = given.get("content") if isinstance(given, dict) else given
        return given if isinstance(given, str) else None

    return Special(name("bos_token"), name("eos_token"), name("pad_token"))

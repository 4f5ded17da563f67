"""Prompts from a JSONL file: one to a line, with an id and settings of its own where it has them.

{"prompt": "Once upon a time", "id": 7, "sampling": {"temperature": 0.8}}
"a prompt alone"
[1, 2, 3]
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pellucid.base.errors import FileError
from pellucid.base.files import read_text
from pellucid.base.schema import Field, read

MOST_BYTES = 1 << 30
KEYS = (
    Field("prompt", str | tuple[int, ...]),
    Field("id", str | int | None, None),
    Field("sampling", Mapping[str, Any], {}),
)
"""The keys of a line."""


@dataclass(frozen=True)
class PromptRecord:
    """A prompt that was given: a text or ids, and what its line says about it."""

    prompt: str | tuple[int, ...]
    id: str | int | None = None
    """Returned with the result, so that the two can be matched."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Settings of this prompt alone."""
    where: str = ""
    """The file and the line, for messages."""


def read_prompt_file(path: Path) -> list[PromptRecord]:
    """Returns the prompts of a JSONL file; all of them are read before anything is generated."""
    return read_prompt_lines(read_text(path, MOST_BYTES), str(path))


def read_prompt_lines(text: str, name: str) -> list[PromptRecord]:
    """Returns the prompt of each line that is not blank; `name` is that of the file, for messages."""
    lines = enumerate(text.split("\n"), 1)  # a text may have other line ends inside its quotes
    found = [_read_line(line, f"{name}, line {number}") for number, line in lines if line.strip()]
    if not found:
        raise FileError(f'{name} has no prompts: a line is a JSON object such as {{"prompt": "Once"}}.')
    return found


def _read_line(line: str, where: str) -> PromptRecord:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FileError(
            f'{where} is not JSON: {error}. A line is {{"prompt": "…"}}, a text in quotes, or ids, [1, 2].'
        ) from None
    table = given if isinstance(given, dict) else {"prompt": given}
    return PromptRecord(**read(KEYS, table, where, path=f"{where}: ", error=FileError), where=where)

"""Conversations in a file: one JSON object per line, in one of three common formats.

{"messages": [{"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": "A parrot."}]}
{"prompt": "Who are you?", "completion": "A parrot."}
{"conversations": [{"from": "human", "value": "Who are you?"}, {"from": "gpt", "value": "A parrot."}]}
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pellucid.base.errors import FileError
from pellucid.text.chat_template import ANSWERS
from pellucid.text.corpus.sources import is_jsonl
from pellucid.text.corpus.unpack import chunks, without_bom

Messages = list[dict[str, str]]
ROLES = {"human": "user", "gpt": ANSWERS}
"""The roles behind ShareGPT's names of speakers."""
CHUNK, MAX_LINE = 1 << 20, 1 << 24
"""Bytes read at a time, and at most in one line."""


class _BadRecord(Exception):
    """What is wrong with a line; `read` adds its number."""


def is_chat(path: str) -> bool:
    """Returns whether a file of JSON lines holds conversations, by its first line."""
    if not is_jsonl(path) or not Path(path).is_file():
        return False
    try:
        first = json.loads(next((line for line in _lines(path) if line.strip()), b""))
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and _find_reader(first) is not None


def read(path: str) -> Iterator[tuple[int, Messages]]:
    """Yields each conversation with its line number, or raises an error that names the line."""
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            yield number, _parse(line)
        except _BadRecord as error:
            raise FileError(f"{path}, line {number}: {error}.") from None


def _lines(path: str) -> Iterator[bytes]:
    stream, _ = without_bom(chunks(path, CHUNK))
    left = b""
    for chunk in stream:
        *whole, left = (left + chunk).split(b"\n")
        yield from whole
        if len(left) > MAX_LINE:
            raise FileError(
                f"{path} has a line of more than {MAX_LINE:,} bytes, more than a conversation may have."
            )
    yield left


def _parse(line: bytes) -> Messages:
    try:
        table = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _BadRecord(f"it is not JSON: {error}") from None
    reader = _find_reader(table) if isinstance(table, dict) else None
    if reader is None:
        raise _BadRecord('it has no "messages", no "prompt" and "completion", and no "conversations"')
    messages = reader(table)
    if not any(message["role"] == ANSWERS for message in messages):
        raise _BadRecord(f"no message has the role {ANSWERS!r}, whose words are the targets")
    if messages[0]["role"] == ANSWERS:
        raise _BadRecord(f"the first message has the role {ANSWERS!r}, without a question before it")
    return messages


def _find_reader(table: dict[str, Any]) -> Callable[[dict[str, Any]], Messages] | None:
    if "messages" in table:
        return lambda table: _read_messages(table["messages"], "role", "content")
    if "prompt" in table and "completion" in table:
        return _read_pair
    if "conversations" in table:
        return lambda table: _read_messages(table["conversations"], "from", "value")
    return None


def _read_messages(given: Any, role: str, content: str) -> Messages:
    if not isinstance(given, list) or not given:
        raise _BadRecord("its messages are not a list, or an empty one")
    messages = []
    for i, message in enumerate(given):
        speaker, text = (
            (message.get(role), message.get(content)) if isinstance(message, dict) else (None, None)
        )
        if not isinstance(speaker, str) or not isinstance(text, str):
            raise _BadRecord(f'message {i} must have "{role}" and "{content}", both strings')
        messages.append({"role": ROLES.get(speaker, speaker), "content": text})
    return messages


def _read_pair(table: dict[str, Any]) -> Messages:
    if not isinstance(table["prompt"], str) or not isinstance(table["completion"], str):
        raise _BadRecord('its "prompt" and "completion" must both be strings')
    return [
        {"role": "user", "content": table["prompt"]},
        {"role": ANSWERS, "content": table["completion"]},
    ]

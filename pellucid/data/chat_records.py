"""Conversations in a file: one JSON object a line, in one of the three forms that are about.

{"messages": [{"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": "A parrot."}]}
{"prompt": "Who are you?", "completion": "A parrot."}
{"conversations": [{"from": "human", "value": "Who are you?"}, {"from": "gpt", "value": "A parrot."}]}
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pellucid.errors import FileError
from pellucid.text.chat import ANSWERS
from pellucid.text.corpus.sources import is_jsonl
from pellucid.text.corpus.unpack import chunks, without_bom

Messages = list[dict[str, str]]
SPEAKERS = {"human": "user", "gpt": ANSWERS}
"""Who speaks in ShareGPT's form, where that is not the role itself."""
CHUNK, LONGEST = 1 << 20, 1 << 24
"""Bytes read at a time, and of one line."""


class _Wrong(Exception):
    """What is wrong with a line; `read` adds which one."""


def is_chat(path: str) -> bool:
    """Whether a file of JSON lines holds conversations, by its first line."""
    if not is_jsonl(path) or not Path(path).is_file():
        return False
    try:
        first = json.loads(next((line for line in _lines(path) if line.strip()), b""))
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and _form(first) is not None


def read(path: str) -> Iterator[tuple[int, Messages]]:
    """Each conversation with the number of its line. What cannot be one is an error that names the line."""
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            yield number, _messages(line)
        except _Wrong as error:
            raise FileError(f"{path}, line {number}: {error}.") from None


def _lines(path: str) -> Iterator[bytes]:
    stream, _ = without_bom(chunks(path, CHUNK))
    left = b""
    for chunk in stream:
        *whole, left = (left + chunk).split(b"\n")
        yield from whole
        if len(left) > LONGEST:
            raise FileError(
                f"{path} has a line of more than {LONGEST:,} bytes, longer than any conversation."
            )
    yield left


def _messages(line: bytes) -> Messages:
    try:
        table = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _Wrong(f"it is not JSON: {error}") from None
    form = _form(table) if isinstance(table, dict) else None
    if form is None:
        raise _Wrong('it has no "messages", no "prompt" and "completion", and no "conversations"')
    messages = form(table)
    if not any(message["role"] == ANSWERS for message in messages):
        raise _Wrong(f"there is nothing to learn in it: no message has the role {ANSWERS!r}")
    if messages[0]["role"] == ANSWERS:
        raise _Wrong("it begins with an answer, and there is no question")
    return messages


def _form(table: dict[str, Any]) -> Callable[[dict[str, Any]], Messages] | None:
    if "messages" in table:
        return lambda table: _listed(table["messages"], "role", "content")
    if "prompt" in table and "completion" in table:
        return _pair
    if "conversations" in table:
        return lambda table: _listed(table["conversations"], "from", "value")
    return None


def _listed(given: Any, role: str, content: str) -> Messages:
    if not isinstance(given, list) or not given:
        raise _Wrong("its messages are no list of messages")
    messages = []
    for i, message in enumerate(given):
        speaker, said = (
            (message.get(role), message.get(content)) if isinstance(message, dict) else (None, None)
        )
        if not isinstance(speaker, str) or not isinstance(said, str):
            raise _Wrong(f'message {i} has no "{role}" and "{content}" that are texts')
        messages.append({"role": SPEAKERS.get(speaker, speaker), "content": said})
    return messages


def _pair(table: dict[str, Any]) -> Messages:
    if not isinstance(table["prompt"], str) or not isinstance(table["completion"], str):
        raise _Wrong('its "prompt" and "completion" are not both texts')
    return [
        {"role": "user", "content": table["prompt"]},
        {"role": ANSWERS, "content": table["completion"]},
    ]

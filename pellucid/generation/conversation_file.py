"""A conversation as a JSON file: its model's name, system message, settings and messages.

{"format": "pellucid-conversation", "version": 1, "model": "smollm2", "system": null,
 "sampling": {"temperature": 0.7}, "messages": [{"role": "user", "content": "Who?"}, …]}
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pellucid.base.errors import FileError
from pellucid.base.files import UNPAIRED, Damaged, Kind, check_format, need, new_file, read_bytes, validating
from pellucid.base.schema import Field, read
from pellucid.generation.settings.sampling import Sampling

FORMAT, VERSION = "pellucid-conversation", 1
MOST_BYTES = 1 << 26
"""Of a file that is read."""
KEYS = (
    *(Field(key, Any) for key in ("format", "version", "sampling")),
    Field("model", str),
    Field("system", str | None),
    Field("messages", list[Any]),
)
ROLES = ("user", "assistant")


class Exchange(NamedTuple):
    """A message of the user and the model's answer."""

    user: str
    answer: str


class SavedConversation(NamedTuple):
    model: str
    system: str | None
    sampling: Sampling
    exchanges: list[Exchange]


def write_conversation(path: Path, saved: SavedConversation, force: bool = False) -> None:
    """Writes a conversation as a new file; `force` replaces an older conversation, and nothing else."""
    data = {
        "format": FORMAT,
        "version": VERSION,
        "model": saved.model,
        "system": saved.system,
        "sampling": saved.sampling.to_dict(),
        "messages": write_messages(None, saved.exchanges),
    }
    with new_file(path, CONVERSATION, force) as file:
        file.write(f"{json.dumps(data, ensure_ascii=False, indent=1)}\n".encode("utf-8", UNPAIRED))


def read_conversation(path: Path) -> SavedConversation:
    """Returns the conversation of a file."""
    data = check_format(path, _read_json(path), "conversation", FORMAT, VERSION)
    with validating(path):
        found: dict[str, Any] = read(KEYS, data, "a conversation", error=Damaged)
        sampling = Sampling.read(found["sampling"], "sampling", error=FileError)
        return SavedConversation(found["model"], found["system"], sampling, _read_messages(found["messages"]))


def write_messages(system: str | None, exchanges: Sequence[Exchange]) -> list[dict[str, str]]:
    """Returns the messages of a conversation, each a role and a content."""
    messages = [] if system is None else [{"role": "system", "content": system}]
    for exchange in exchanges:
        messages += [
            {"role": role, "content": content} for role, content in zip(ROLES, exchange, strict=True)
        ]
    return messages


def _read_messages(messages: list[Any]) -> list[Exchange]:
    texts = []
    for i, message in enumerate(messages):
        known = isinstance(message, dict) and message.keys() == {"role", "content"}
        need(known and isinstance(message["content"], str), f"messages[{i}] is not a role and a content")
        need(message["role"] == ROLES[i % 2], f"messages[{i}].role must be {ROLES[i % 2]}: they take turns")
        texts.append(message["content"])
    need(len(texts) % 2 == 0, "the last message has no answer")
    return [Exchange(*pair) for pair in zip(texts[::2], texts[1::2], strict=True)]


def _read_json(path: Path) -> Any:
    try:
        return json.loads(read_bytes(path, MOST_BYTES))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is not a conversation: it is not JSON: {error}.") from None


def _why_not(path: Path) -> str:
    try:
        data = _read_json(path)
    except FileError:
        return "it is not JSON"
    is_known = isinstance(data, dict) and data.get("format") == FORMAT
    return "" if is_known else f'it does not say "format": "{FORMAT}"'


CONVERSATION = Kind("a conversation", _why_not)

"""A first request to a server, as a line for the shell that works when it is pasted there."""

import json
import shlex
from pathlib import Path
from typing import Any

from pellucid.base.errors import PellucidError
from pellucid.formats.pretrained import Pretrained
from pellucid.server.http.key_file import VARIABLE

QUESTION, BEGINNING = "Who are you?", "Once upon a time"
MAX_TOKENS = 40


def make_curl_line(url: str, pretrained: Pretrained, has_key: bool, key_file: Path | None = None) -> str:
    """Returns a line that asks the model something that it can read.

    The key itself is not in it: the shell reads it from its file, or from the environment."""
    path, body = choose_request(pretrained)
    parts = ["curl", shlex.quote(f"{url}/v1/{path}"), "-H 'Content-Type: application/json'"]
    if has_key:
        key = f"${VARIABLE}" if key_file is None else f"$(cat {shlex.quote(str(key_file))})"
        parts.append(f'-H "Authorization: Bearer {key}"')
    return " ".join([*parts, "-d", shlex.quote(json.dumps(body))])


def choose_request(pretrained: Pretrained) -> tuple[str, dict[str, Any]]:
    """Returns a path and a body: a question where the model has a chat template, else a text's beginning, or
    one token where the tokenizer cannot read that."""
    room = {"max_tokens": min(MAX_TOKENS, pretrained.config.context_length // 2)}
    if not can_read(pretrained, BEGINNING + QUESTION):
        return "completions", {"prompt": [pretrained.start_id or 0], **room}
    if pretrained.chat_template is None:
        return "completions", {"prompt": BEGINNING, **room}
    return "chat/completions", {"messages": [{"role": "user", "content": QUESTION}], **room}


def can_read(pretrained: Pretrained, text: str) -> bool:
    """Whether the model has a tokenizer that has all of a text's characters or words."""
    try:
        return pretrained.tokenizer is not None and bool(pretrained.tokenizer.encode(text))
    except PellucidError:
        return False

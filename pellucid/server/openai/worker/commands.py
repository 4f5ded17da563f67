"""The commands that the engine's process is sent: `parse_command(line)`."""

import json
from typing import NamedTuple

from pellucid.base.errors import PellucidError
from pellucid.generation.answers.lines import GenerateRequest
from pellucid.generation.request import Request
from pellucid.generation.settings.sampling import Sampling


class Command(NamedTuple):
    """One command; `error` says why it cannot be followed."""

    id: int
    do: str
    given: GenerateRequest | None = None
    request: Request | None = None
    """`given`, as the engine takes it."""
    prompt: tuple[int, ...] = ()
    """Of `embed`."""
    error: str | None = None


def parse_command(line: bytes) -> Command:
    """Returns the command of a line; that of a request with settings that cannot be is `refuse`.

    >>> parse_command(b'{"id": 7, "do": "cancel"}').do
    'cancel'
    """
    found = json.loads(line)
    if found["do"] != "generate":
        return Command(found["id"], found["do"], prompt=tuple(found.get("prompt", ())))
    given = GenerateRequest(**found["request"])
    given = given._replace(prompt=tuple(given.prompt))
    try:
        return Command(found["id"], "generate", given, make_request(given))
    except PellucidError as error:
        return Command(found["id"], "refuse", error=str(error))


def make_request(given: GenerateRequest) -> Request:
    """Returns what the engine is asked for."""
    return Request(
        given.prompt,
        Sampling.read(given.sampling),
        logprobs=given.top_logprobs is not None,
        ledger=given.ledger,
        prompt_logprobs=given.prompt_logprobs,
        top_logprobs=given.top_logprobs or 0,
        uncertainty=given.explain,
    )

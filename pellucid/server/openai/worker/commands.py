"""The commands that the engine's process is sent, read strictly: `parse_command(line)`."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pellucid.base.arguments import check_one_of
from pellucid.base.errors import PellucidError, UsageError, quote, show
from pellucid.base.pipes import parse_table
from pellucid.base.schema import Field, read
from pellucid.generation.answers.lines import GenerateRequest
from pellucid.generation.request import MOST_PROMPT, Request, read_request
from pellucid.generation.settings.table import TokenId

MOST_COMMAND = 2**25
"""Bytes of a line: a prompt of `MOST_PROMPT` ids with settings."""
PROMPT = Field("prompt", tuple[TokenId, ...], most=MOST_PROMPT)
REQUEST = (
    PROMPT,
    Field("sampling", Mapping[str, Any]),
    Field("top_logprobs", int | None, None),
    *(Field(name, bool, False) for name in ("prompt_logprobs", "explain", "ledger")),
)
KEYS: dict[str, tuple[Field, ...]] = {
    "generate": (Field("request", Mapping[str, Any]),),
    "cancel": (),
    "embed": (PROMPT,),
}
"""What each command has besides `id` and `do`."""


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
    """Returns the command of a line; its id is 0 where even that cannot be read.

    >>> parse_command(b'{"id": 7, "do": "cancel"}').do
    'cancel'
    """
    id = 0
    try:
        table = parse_table(line, "a command", MOST_COMMAND)
        id = _read_id(table.get("id"))
        return _read_command(id, table)
    except PellucidError as error:
        return Command(id, "refuse", error=str(error))
    except Exception as error:  # a defect: the request must have an end, and the lines after it too
        return Command(id, "refuse", error=f"the command cannot be read: {quote(error)}.")


def _read_id(value: Any) -> int:
    if type(value) is not int or not 0 < value < 2**63:
        raise UsageError(f"id of a command must be a whole number from 1, not {show(value)}.")
    return value


def _read_command(id: int, table: dict[str, Any]) -> Command:
    do = check_one_of("do", table.get("do"), KEYS)
    keys = (Field("id", int), Field("do"), *KEYS[do])
    found: dict[str, Any] = read(keys, table, f"the command {do}")
    if do == "generate":
        given = read(REQUEST, found["request"], "a request", GenerateRequest)
        return Command(id, do, given, make_request(given))
    return Command(id, do, prompt=found.get("prompt", ()))


def make_request(given: GenerateRequest) -> Request:
    """Returns what the engine is asked for."""
    return read_request(
        {
            "prompt": given.prompt,
            "sampling": given.sampling,
            "logprobs": given.top_logprobs is not None,
            "top_logprobs": given.top_logprobs or 0,
            "prompt_logprobs": given.prompt_logprobs,
            "uncertainty": given.explain,
            "ledger": given.ledger,
        }
    )

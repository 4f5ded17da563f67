"""The commands that the engine's process is sent, read strictly: `parse_command(line)`."""

from typing import Any, NamedTuple

from pellucid.base.arguments import check_one_of
from pellucid.base.errors import PellucidError, UsageError, quote, show
from pellucid.base.pipes import parse_table
from pellucid.base.strict import check_keys, check_value
from pellucid.generation.answers.lines import GenerateRequest
from pellucid.generation.request import MOST_PROMPT, Request, read_request
from pellucid.generation.settings.table import check_token

MOST_COMMAND = 2**25
"""Bytes of a line: a prompt of `MOST_PROMPT` ids with settings."""
KEYS = {"generate": ("request",), "cancel": (), "embed": ("prompt",)}
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
    keys = ("id", "do", *KEYS[do])
    check_keys(table, keys, f"the command {do}", keys, UsageError)
    if do == "generate":
        given = _read_given(table["request"])
        return Command(id, do, given, make_request(given))
    return Command(id, do, prompt=_read_prompt(table["prompt"]) if do == "embed" else ())


def _read_given(table: Any) -> GenerateRequest:
    check_keys(table, GenerateRequest._fields, "a request", ["prompt", "sampling"], UsageError)
    prompt = _read_prompt(table["prompt"])
    if not isinstance(table["sampling"], dict):
        raise UsageError(f"sampling must be a table, not {show(table['sampling'])}.")
    kinds = {"top_logprobs": int | None, "prompt_logprobs": bool, "explain": bool, "ledger": bool}
    rest = {
        key: check_value(kind, table[key], key, UsageError) for key, kind in kinds.items() if key in table
    }
    return GenerateRequest(prompt, table["sampling"], **rest)


def _read_prompt(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MOST_PROMPT:
        raise UsageError(f"prompt must be a list of at most {MOST_PROMPT:,} ids, not {show(value)}.")
    return tuple(check_token("prompt", id) for id in value)


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

"""TOML read as untrusted input: a text becomes tables, or one error that says which file and which key."""

import re
import tomllib
from typing import Any

from pellucid.base.arguments import INT64
from pellucid.base.errors import FileError, PellucidError, quote

MOST_NESTED = 100
"""Tables and lists inside each other; no file of ours comes near."""
_LONG = re.compile(r"(?<![\w.])\d[\d_]{99,}")
TOO_LARGE = str(2**64)


def parse_toml(text: str, source: str, error: type[PellucidError] = FileError) -> dict[str, Any]:
    """Returns the tables of a TOML text; `source` names it in messages."""
    try:
        table = load_toml(text)
    except tomllib.TOMLDecodeError as reason:
        raise error(f"{source} is not TOML: {quote(reason)}.") from None
    check_numbers(table, source, error)
    return table


def load_toml(text: str) -> dict[str, Any]:
    """Returns the tables of a TOML text; an integer that is too long to be read is 2^64 in them."""
    try:
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            raise
        except ValueError:  # thousands of digits, which Python refuses without saying where they are
            return tomllib.loads(_LONG.sub(TOO_LARGE, text))
    except RecursionError:
        raise tomllib.TOMLDecodeError("its tables or lists are nested too deeply") from None


def check_numbers(value: Any, place: str, error: type[PellucidError], key: str = "", depth: int = 0) -> None:
    """Raises for an integer of more than 64 bits, which TOML does not have either, and for deep nesting."""
    if depth > MOST_NESTED:
        raise error(f"{place}: {key[:80]}… is nested more than {MOST_NESTED} times.")
    if isinstance(value, dict):
        for name, entry in value.items():
            check_numbers(entry, place, error, f"{key}.{name}" if key else name, depth + 1)
    elif isinstance(value, list):
        for i, entry in enumerate(value):
            check_numbers(entry, place, error, f"{key}[{i}]", depth + 1)
    elif type(value) is int and not INT64[0] <= value <= INT64[1]:
        raise error(
            f"{': '.join(filter(None, (place, key)))} is an integer of more than 64 bits: give a smaller one."
        )

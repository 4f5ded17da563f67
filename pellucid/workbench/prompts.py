"""What a model is given to read: a text, a list of ids, several of either, an array."""

import operator
from collections.abc import Sequence
from typing import Any

from pellucid.arguments import is_bool
from pellucid.errors import TokenError, UsageError, show

Prompt = str | Sequence[int]

NOT_IDS = "ids must be whole numbers, in a list or in several, at least one in each."


def apart(given: Any) -> tuple[list[Any], bool]:
    """Returns the prompts that are given, and whether it was one alone."""
    if isinstance(given, str):
        return [given], True
    rows = [_plain(row) for row in check_prompt(given)]
    single = not any(isinstance(row, Sequence) for row in rows)
    if not single and not all(isinstance(row, Sequence) for row in rows):
        raise TokenError(NOT_IDS)
    return [rows] if single else rows, single


def check_prompt(given: Any, parameter: str = "prompt") -> Any:
    """Returns a text or a list of whatever it lists; bytes, sets and numbers are neither."""
    given = _plain(given)
    if isinstance(given, Sequence) and not isinstance(given, bytes | bytearray | memoryview):
        return given
    raise UsageError(f"{parameter} must be a text or token ids such as [1, 2, 3], not {show(given)}.")


def whole(ids: Any, parameter: str = "ids") -> list[int]:
    """Returns the ids as integers; nothing is rounded."""
    listed = check_prompt(ids, parameter)
    if isinstance(listed, str):
        raise TokenError(
            f"{parameter} must be token ids such as [1, 2, 3], not a text; `encode(text)` gives them."
        )
    try:
        found = [operator.index(id) for id in listed]
    except TypeError:
        raise TokenError(NOT_IDS) from None
    if any(is_bool(id) for id in listed):
        raise TokenError(NOT_IDS)
    if any(not -(2**63) <= id < 2**63 for id in found):  # no tensor holds them
        raise TokenError("an id is beyond every vocabulary; ids count a model's tokens from 0.")
    return found


def _plain(given: Any) -> Any:
    return given.tolist() if hasattr(given, "tolist") else given

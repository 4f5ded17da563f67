"""What people give a model to read: a text, a list of ids, several of either, an array."""

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from pellucid.errors import TokenError

Prompt = str | Sequence[int]

NOT_IDS = "ids must be whole numbers, in a list or in several, at least one in each."


def apart(given: Any) -> tuple[list[Any], bool]:
    """The prompts that are given, and whether it was one alone."""
    if isinstance(given, str):
        return [given], True
    try:
        rows = list(map(_plain, _plain(given)))
    except TypeError:  # a number
        raise TokenError(NOT_IDS) from None
    single = not any(isinstance(row, Sequence) for row in rows)
    return [rows] if single else rows, single


def whole(ids: Iterable[Any]) -> list[int]:
    """The ids as whole numbers; nothing is rounded."""
    try:
        found = [operator.index(id) for id in ids]
    except TypeError:
        raise TokenError(NOT_IDS) from None
    if any(not -(2**63) <= id < 2**63 for id in found):  # no tensor holds them
        raise TokenError("an id is beyond every vocabulary; ids count a model's tokens from 0.")
    return found


def _plain(given: Any) -> Any:
    return given.tolist() if hasattr(given, "tolist") else given

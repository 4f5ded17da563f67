"""Tables on a terminal of any width: names stay, the columns that matter least leave first."""

from collections.abc import Iterable, Mapping

GAP = 2
"""Spaces between two columns."""


def columns_that_fit(widths: Mapping[str, int], room: int, order: Iterable[str]) -> list[str]:
    """Returns the columns that fit beside each other in `room`; where they do not, those of `order` leave.

    >>> columns_that_fit({"run": 10, "state": 8, "loss": 6, "tokens": 6}, 30, ["tokens", "loss"])
    ['run', 'state', 'loss']
    """
    kept = list(widths)
    for name in order:
        if sum(widths[column] + GAP for column in kept) - GAP <= room:
            break
        if name in kept:
            kept.remove(name)
    return kept

"""Tables on a terminal of any width: names stay, the columns that matter least leave first."""

from collections.abc import Iterable, Mapping

from rich.cells import cell_len

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


def shorten(text: str, width: int) -> str:
    """Returns the text, or its beginning and its end around a … where it needs more than `width` columns.

    >>> shorten("runs/sweep/seed-0017", 12)
    'runs/…d-0017'
    """
    if cell_len(text) <= width:
        return text
    end = _begin(text[::-1], width // 2)[::-1]
    return f"{_begin(text, width - 1 - width // 2)}…{end}"


def _begin(text: str, room: int) -> str:
    """The longest beginning of at most `room` columns; some letters need two."""
    for i, letter in enumerate(text):
        room -= cell_len(letter)
        if room < 0:
            return text[:i]
    return text

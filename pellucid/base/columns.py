"""Text in columns of a terminal, in which some letters take two and others none."""

import unicodedata
from collections.abc import Iterator, Sequence

GAP = 2
"""Spaces between two columns of a table."""


def display_width(text: str) -> int:
    """Returns the columns that a text takes on a terminal.

    >>> display_width("cat"), display_width("猫")
    (3, 2)
    """
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def cut(text: str, width: int) -> str:
    """Returns the text, or its beginning and a … where it needs more columns.

    >>> cut("·nevertheless", 6)
    '·neve…'
    """
    if display_width(text) <= width:
        return text
    while text and display_width(text) >= width:
        text = text[:-1]
    return f"{text}…"


def shorten(text: str, width: int) -> str:
    """Returns the text, or its beginning and its end around a … where it needs more than `width` columns.

    >>> shorten("runs/sweep/seed-0017", 12)
    'runs/…d-0017'
    """
    if display_width(text) <= width:
        return text
    end = _begin(text[::-1], width // 2)[::-1]
    return f"{_begin(text, width - 1 - width // 2)}…{end}"


def _begin(text: str, room: int) -> str:
    """The longest beginning of at most `room` columns; some letters need two."""
    for i, letter in enumerate(text):
        room -= display_width(letter)
        if room < 0:
            return text[:i]
    return text


def pad(text: str, width: int, right: bool = False) -> str:
    """Returns the text with spaces up to that width, at its right or its left."""
    space = " " * (width - display_width(text))
    return space + text if right else text + space


def wrap(text: str, width: int) -> list[str]:
    """Returns the lines of a text that is broken at spaces.

    >>> wrap("a text of some words", 9)
    ['a text of', 'some', 'words']
    """
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if display_width(joined) <= width or not lines[-1]:
            lines[-1] = joined
        else:
            lines.append(word)
    return lines


def format_columns(
    rows: Sequence[Sequence[str]], width: int, fixed: int = 1, first: int = 30, most: int = 18
) -> Iterator[str]:
    """Yields the lines of a table whose first row has the names of the columns; the first column is aligned
    left and at most `first` columns of the terminal wide, the others are aligned right, at most `most` wide.

    Columns that do not fit beside each other come in further blocks, below, each with the first `fixed` ones.

    >>> print(*format_columns([["", "a", "b"], ["loss", "1.25", "1.5"]], 80), sep="\\n")
             a    b
    loss  1.25  1.5
    """
    cells = [[shorten(cell, most if i else first) for i, cell in enumerate(row)] for row in rows]
    widths = [max(map(display_width, column)) for column in zip(*cells, strict=True)]
    room = width - sum(wide + GAP for wide in widths[:fixed]) + GAP
    blocks, left = list[list[int]](), 0
    for i, wide in list(enumerate(widths))[fixed:]:
        if not blocks or wide + GAP > left:
            blocks.append([])
            left = room
        blocks[-1].append(i)
        left -= wide + GAP
    for number, block in enumerate(blocks or [[]]):
        yield from [""] * (number > 0)
        for row in cells:
            shown = [pad(row[i], widths[i], right=i > 0) for i in [*range(fixed), *block]]
            yield (" " * GAP).join(shown).rstrip()

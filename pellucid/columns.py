"""Text in columns of a terminal, in which some letters take two and others none."""

import unicodedata


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

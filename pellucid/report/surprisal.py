"""Tokens of a text on a page, each with a background by its surprisal −ln p.

The style of the classes `t` and `s0` to `s6` is in `surprisal.css`, for light pages and dark ones.
"""

import re
from bisect import bisect
from collections.abc import Iterator
from pathlib import Path

from pellucid.report.page import escape_text

SURPRISAL_LEVELS = (0.1, 0.5, 1.0, 2.0, 4.0, 7.0)
"""Where the next color begins, in nats."""
_BLANKS = re.compile(r"(·+|(?:\\n|\\t)+)")


def compute_level(surprisal: float) -> int:
    """Returns the color of a surprisal, from 0 to 6.

    >>> compute_level(0.05), compute_level(1.0), compute_level(20)
    (0, 3, 6)
    """
    return bisect(SURPRISAL_LEVELS, surprisal)


def read_token_style() -> str:
    """Returns the style of tokens and of their legend, as CSS."""
    return (Path(__file__).parent / "surprisal.css").read_text("utf-8")


def draw_token(text: str, surprisal: float | None, attributes: str = "", kinds: str = "") -> str:
    """Returns a token, as `Tokenizer.visible` shows it, with its color; without one where the surprisal is
    None. A line ends where the token ends one."""
    level = "" if surprisal is None else f" s{compute_level(surprisal)}"
    shown = _BLANKS.sub(r"<i>\1</i>", escape_text(text) or "(empty)")
    line_end = "<br>" if text.endswith("\\n") else ""
    return f'<span class="t{level}{kinds}"{attributes}>{shown}</span>{line_end}'


def draw_legend(*more: str) -> Iterator[str]:
    """Yields a list of what the colors mean, and further items."""
    yield '<ul class="legend" aria-label="colors: the surprisal of a token">'
    yield "<li>surprisal −ln p, in nats:</li>"
    ends = [f"{level:g}" for level in SURPRISAL_LEVELS]
    words = [f"below {ends[0]}", *(f"to {end}" for end in ends[1:]), f"{ends[-1]} and more"]
    for level, word in enumerate(words):
        yield f'<li><span class="t s{level}">·a</span>{word}</li>'
    yield from more
    yield "</ul>"

"""The marks that every drawing is made of: colors, texts, lines and rectangles as SVG."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from unicodedata import combining
from xml.sax.saxutils import escape

from pellucid.report.chart import LegendKey, color

INK, FAINT, PAPER, RULE, NONE = "#1f2933", "#5f6c7b", "#ffffff", "#d5dbe3", "#e8ebef"
COLORS = ("#2b6cb0", "#d9480f", "#2f855a", "#9b2c86", "#b7791f", "#4a5568", "#5a4fcf", "#c53030")
ON_BRIGHT, ON_DARK = "#010101", "#fefefe"
"""Of a text on a colored cell."""
SHADES = 64
"""Colors of a scale, so that a page can name the dark one of each."""
DASHES = ("none", "7 3", "2 3", "9 3 2 3")
SMALL = f'font-size="11" fill="{FAINT}"'
LINE = 16
"""Pixels from a line of text to the next."""
MIDDLE = 'text-anchor="middle"'
BOLD = 'font-weight="bold"'
HALO = f'stroke="{PAPER}" stroke-width="3" paint-order="stroke"'
"""Of a text over which lines may pass."""
_WIDE, _SLIM = "mwMWQGOD@%—…→←∞=+−×<>ℒ", "ijlItfr.,:;'|!()[] "
_SUBSCRIPT = re.compile(r"_(\w+)")


class Tile(NamedTuple):
    """The pixels around the axes of a plot, and the size of the axes."""

    left: int
    right: int
    above: int
    below: int
    width: int
    height: int

    @property
    def outer(self) -> tuple[int, int]:
        return self.left + self.width + self.right, self.above + self.height + self.below


def svg_tag(width: float, height: float, more: str = "") -> str:
    """Returns the opening tag of a drawing of this size."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'font-family="DejaVu Sans, Verdana, sans-serif" font-size="12" fill="{INK}" {more}>'
    ).replace(" >", ">")


def text(x: float, y: float, words: str, style: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>'.replace(" >", ">")


def symbol_text(x: float, y: float, words: str, style: str = "") -> str:
    """Returns a text in which W_Q has a subscript, placed to a tenth of a pixel."""
    inner, end = "", 0
    for found in _SUBSCRIPT.finditer(words):
        inner += f'{escape(words[end : found.start()])}<tspan dy="3" font-size="9">{escape(found[1])}</tspan>'
        end = found.end()
        if end < len(words):  # a shift lasts until the end of the text
            inner += f'<tspan dy="-3">{escape(words[end])}</tspan>'
            end += 1
    at = f'x="{round(x, 1):g}" y="{round(y, 1):g}"'
    return f"<text {at} {style}>{inner}{escape(words[end:])}</text>".replace(" >", ">")


def line(x: float, y: float, to_x: float, to_y: float, style: str = "") -> str:
    style = style or f'stroke="{INK}"'
    begin, end = f"{round(x, 1):g} {round(y, 1):g}", f"{round(to_x, 1):g} {round(to_y, 1):g}"
    return f'<path fill="none" {style} d="M{begin}L{end}"/>'


def rect(x: float, y: float, width: float, height: float, style: str) -> str:
    size = f'width="{round(width, 1):g}" height="{round(height, 1):g}"'
    return f'<rect x="{round(x, 1):g}" y="{round(y, 1):g}" {size} {style}/>'


def dot(x: float, y: float, fill: str = INK, is_open: bool = False) -> str:
    """Returns a disk, or a ring."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{PAPER if is_open else fill}" stroke="{fill}"/>'


def text_width(words: str, size: float = 12, is_bold: bool = False) -> float:
    """Returns about how many pixels a text takes in a wide font, so that others are narrower."""
    letters = sum(1.0 if c in _WIDE else 0.42 if c in _SLIM else 0.0 if combining(c) else 0.65 for c in words)
    return letters * size * (1.12 if is_bold else 1)


def wrap(words: str, width: float, size: float = 12, is_bold: bool = False) -> list[str]:
    """Returns the words in lines that fit into a width.

    >>> wrap("loss over the updates", 80)
    ['loss over', 'the updates']
    """
    lines = [""]
    for word in words.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size, is_bold) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines if lines[0] else []


def title_marks(lines: list[str], x: float, y: float) -> Iterator[str]:
    """Yields the lines of a title in bold, the first on the baseline y + 12."""
    return (symbol_text(x, y + 12 + LINE * i, words, BOLD) for i, words in enumerate(lines))


def stroke(key: LegendKey) -> str:
    """Returns the attributes of a line in the color and the dash pattern of a key."""
    dash = f' stroke-dasharray="{DASHES[key.dash % len(DASHES)]}"' if key.dash % len(DASHES) else ""
    return f'stroke="{COLORS[key.color % len(COLORS)]}"{dash}'


def hex_color(place: float, scale: str) -> str:
    """Returns the color at a position of a color scale; grey where there is none.

    >>> hex_color(0.0, "log"), hex_color(0.5, "log"), hex_color(float("nan"), "log")
    ('#f3f1eb', '#84abd3', '#e8ebef')
    """
    found = color(place if math.isnan(place) else round(place * SHADES) / SHADES, scale)
    return NONE if found is None else format_hex(found)


def format_hex(color: Sequence[int]) -> str:
    return "#" + "".join(f"{part:02x}" for part in color)

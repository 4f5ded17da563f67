"""Colors of plots on a page: they follow its light or dark style, heat maps too.

A drawing by itself has fixed colors. On a page those of ink and paper become the page's own; in the dark,
lines become bright, and a cell has the color of its value on the dark scale.
"""

import re
from collections.abc import Iterator

from pellucid.report.chart import DARK_SCALES, SCALES, interpolate
from pellucid.report.svg.marks import (
    COLORS,
    FAINT,
    INK,
    NONE,
    ON_BRIGHT,
    ON_DARK,
    PAPER,
    RULE,
    SHADES,
    format_hex,
)

BRIGHT = ("#63b3ed", "#ff9257", "#5fd39a", "#e58fd4", "#ecc04f", "#b5c0cf", "#a59bff", "#ff8585")
PAGE = {
    INK: "var(--ink)",
    FAINT: "var(--faint)",
    PAPER: "var(--paper)",
    RULE: "var(--rule)",
    NONE: "var(--none)",
}
"""What a color becomes on a page, light or dark."""
DARK = {**dict(zip(COLORS, BRIGHT, strict=True)), ON_BRIGHT: ON_DARK, ON_DARK: ON_BRIGHT}
"""What it becomes on a dark page alone: lines, and texts on a colored cell."""
_COLOR = re.compile(r'(?:fill|stroke)="(#[0-9a-f]{6})"')


def list_shades() -> dict[str, str]:
    """Returns the dark color of each color that a heat map may have."""
    return {
        format_hex(interpolate(i / SHADES, SCALES[scale])): format_hex(interpolate(i / SHADES, dark))
        for scale, dark in DARK_SCALES.items()
        for i in range(SHADES + 1)
    }


def plot_rules(body: str) -> str:
    """Returns the style rules for the colors of the drawings in a page's HTML."""
    used = sorted(set(_COLOR.findall(body)))
    if not used:
        return ""
    dark = list_shades() | DARK
    always = "\n".join(_rules(PAGE, used))
    return f"{always}\n@media (prefers-color-scheme: dark) {{\n{chr(10).join(_rules(dark, used))}\n}}\n"


def _rules(colors: dict[str, str], used: list[str]) -> Iterator[str]:
    for light in used:
        if shown := colors.get(light):
            yield f'[fill="{light}"] {{ fill: {shown}; }} [stroke="{light}"] {{ stroke: {shown}; }}'

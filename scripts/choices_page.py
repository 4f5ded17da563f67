"""The page of all choices, and its pictures: written from what `pellucid choices` prints.

The pictures are plain SVG with a background of their own, so that they can be read on light pages and dark.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np

from pellucid.cards.choice_pictures import Grid, Lines, Picture, pictures
from pellucid.cards.choices import PRESET, Choice, Family, beside_default, families, toml, usual
from pellucid.cost import Cost, total
from pellucid.figures.ticks import ticks

INK, FAINT, PAPER, RULE = "#1f2933", "#5f6c7b", "#ffffff", "#d5dbe3"
FULL, EMPTY = "#2b6cb0", "#eef1f5"
COLOURS = ("#2b6cb0", "#d9480f", "#2f855a", "#9b2c86", "#b7791f", "#4a5568", "#5a4fcf", "#c53030")
DASHES = ("none", "6 3")
MARGIN, TOP = 20, 46


def choices_page() -> Iterator[str]:
    yield "# Choices\n"
    yield (
        "Every choice that a model is made of: the kinds of each family, what they compute, who says so, "
        "what they cost. `pellucid choices` prints the list, `pellucid choices NAME` more about one.\n"
    )
    yield from (f"- [{family.name}](#{family.name}): {family.idea}" for family in families())
    for family in families():
        yield f"\n## {family.name}\n\n{family.idea}"
        for where, known in (("config", family.keys), ("recipe", family.recipe)):
            keys = ", ".join(f"`{key}` (default `{kind}`)" for key, kind in known.items())
            if keys:
                yield f"\nIn a {where}: {keys}."
        yield "\n| kind | idea | formula | source |\n|---|---|---|---|"
        for choice in family.choices:
            formula = f"`{choice.formula}`" if choice.formula else ""
            yield f"| `{choice.kind}` | {_cell(choice.idea)} | {_cell(formula)} | {_cell(choice.source)} |"
        yield from _costs(family)
        for name, shown in _pictures(family).items():
            yield f"\n![{family.name}: {shown[0][1].title}](choices/{name})"


def choices_pictures() -> dict[str, str]:
    """Every drawing by the name of its file."""
    found = ((family, name, shown) for family in families() for name, shown in _pictures(family).items())
    return {name: drawing(f"{family.name}: {shown[0][1].title}", shown) for family, name, shown in found}


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _costs(family: Family) -> Iterator[str]:
    """What the kinds cost, where they differ; those that cost what the default costs are only named."""
    if not family.keys:
        return
    shape, as_it_is = usual()
    rows, same, not_here = [], [], []
    found = [(choice, beside) for choice in family.choices for beside in beside_default(family, choice)]
    for choice, beside in sorted(found, key=lambda pair: list(family.keys).index(pair[1].key)):
        if beside.why:
            not_here.append(f"`{beside.key} = {choice.kind}` does not go with the rest of it: {beside.why}")
        elif beside.parts:
            rows.append(f"| `{choice.written(beside.key)}` | {_figures(total(beside.here))} |")
        else:
            same.append(f"`{beside.key} = {choice.kind}`")
    if rows:
        yield f"\nIn {PRESET}, one sequence of {shape.context_length:,} tokens forward, two bytes a number:"
        yield "\n| | parameters | GFLOP | activation MB | cache MB |\n|---|--:|--:|--:|--:|"
        yield f"| as it is | {_figures(total(as_it_is))} |"
        yield from rows
    if same:
        yield f"\nNo other cost in {PRESET}: {', '.join(same)}."
    for line in not_here:
        yield f"\nIn {PRESET} {line}"


def _figures(c: Cost) -> str:
    return (
        f"{c.parameters:,} | {c.flops / 1e9:,.1f} | "
        f"{c.activation_bytes / 1e6:,.1f} | {c.cache_bytes / 1e6:,.1f}"
    )


def _pictures(family: Family) -> dict[str, list[tuple[Choice, Picture]]]:
    """The pictures of a family by file: those of one title in one drawing."""
    found: dict[str, list[tuple[Choice, Picture]]] = {}
    for choice in family.choices:
        for picture in pictures(choice.value):
            slug = re.sub(r"[^a-z0-9]+", "-", f"{family.name} {picture.title}".replace("'s", ""))
            found.setdefault(f"{slug}.svg", []).append((choice, picture))
    return found


def drawing(title: str, shown: list[tuple[Choice, Picture]]) -> str:
    """One SVG: grids side by side, or all curves over the same axes."""
    grids = [(choice, picture) for choice, picture in shown if isinstance(picture, Grid)]
    lines = [picture for _, picture in shown if isinstance(picture, Lines)]
    if grids:
        width, height, marks = _tiles(grids)
    else:
        curves = {name: curve for picture in lines for name, curve in picture.curves.items()}
        width, height, marks = _axes(replace(lines[0], curves=curves))
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-family="DejaVu Sans, Verdana, sans-serif" font-size="12" fill="{INK}">',
            f"<title>{escape(title)}</title>",
            f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6" fill="{PAPER}" '
            f'stroke="{RULE}"/>',
            _text(MARGIN, 27, title, 'font-size="15" font-weight="bold"'),
            *marks,
            "</svg>\n",
        )
    )


def _tiles(grids: list[tuple[Choice, Grid]]) -> tuple[int, int, list[str]]:
    """Grids in rows of four, each under its kind and settings; a wide one gets a row for itself."""
    rows, columns = grids[0][1].cells.shape
    side = 9
    across = min(len(grids), max(1, 680 // (columns * side)))
    wide, high = columns * side + 28, rows * side + 46
    marks = []
    for i, (choice, grid) in enumerate(grids):
        x, y = MARGIN + i % across * wide, TOP + i // across * high
        settings = ", ".join(f"{name} {toml(value)}" for name, value in choice.settings.items())
        marks.append(_text(x, y + 12, choice.kind, 'font-weight="bold"'))
        marks.append(_text(x, y + 27, settings, f'font-size="10.5" fill="{FAINT}"'))
        marks += _cells(grid, x, y + 34, side)
    width = MARGIN * 2 + across * wide - 28
    height = TOP + -(-len(grids) // across) * high + 24
    first = grids[0][1]
    note = f"{first.down} downwards, {first.across} to the right, both from 0"
    note += "; blue is −1, white 0, orange 1" if (first.cells < 0).any() else "; blue: may look"
    marks.append(_text(MARGIN, height - 14, note, f'fill="{FAINT}"'))
    return max(width, 470), height, marks


def _cells(grid: Grid, x: int, y: int, side: int) -> Iterator[str]:
    """One path per shade, a square for each cell of that shade."""
    signed = bool((grid.cells < 0).any())
    levels = np.round(grid.cells * 8).astype(int)
    gap = 0 if signed else 1
    for level in np.unique(levels):
        square = f"h{side - gap}v{side - gap}h-{side - gap}z"
        path = "".join(f"M{x + j * side} {y + i * side}{square}" for i, j in np.argwhere(levels == level))
        yield f'<path fill="{_shade(level / 8) if signed else (FULL if level else EMPTY)}" d="{path}"/>'


def _shade(value: float) -> str:
    """White at 0, blue towards −1, orange towards 1."""
    end = (0x2B, 0x6C, 0xB0) if value < 0 else (0xD9, 0x6A, 0x0F)
    return "#" + "".join(f"{round(255 + (part - 255) * abs(value)):02x}" for part in end)


def _axes(lines: Lines) -> tuple[int, int, list[str]]:
    left, top, wide, high = MARGIN + 46, TOP + 22, 440, 260
    marks = [
        _text(MARGIN, TOP + 10, lines.up, f'fill="{FAINT}"'),
        f'<rect x="{left}" y="{top}" width="{wide}" height="{high}" fill="none" stroke="{RULE}"/>',
    ]
    for value, place in ticks(*lines.range(), lines.log):
        y = round(top + high * (1 - place), 1)
        marks.append(f'<path stroke="{RULE}" d="M{left} {y}h{wide}"/>')
        marks.append(_text(left - 6, y + 4, value, f'text-anchor="end" font-size="11" fill="{FAINT}"'))
    for value, place in ticks(float(lines.x[0]), float(lines.x[-1]), log=False):
        x = round(left + wide * place, 1)
        marks.append(f'<path stroke="{RULE}" d="M{x} {top}v{high}"/>')
        marks.append(_text(x, top + high + 17, value, f'text-anchor="middle" font-size="11" fill="{FAINT}"'))
    marks.append(
        _text(left + wide / 2, top + high + 36, lines.across, f'text-anchor="middle" fill="{FAINT}"')
    )
    marks += _curves(lines, left, top, wide, high)
    longest = max(map(len, lines.curves))
    return left + wide + 58 + 8 * longest, top + high + 52, marks


def _curves(lines: Lines, left: int, top: int, wide: int, high: int) -> Iterator[str]:
    """The curves, and their names at the right in the same order."""
    across = (lines.x - lines.x[0]) / (lines.x[-1] - lines.x[0])
    for i, (name, curve) in enumerate(lines.scaled().items()):
        colour, dash = COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)]
        style = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
        inside = (curve >= -1e-9) & (curve <= 1 + 1e-9)
        points = zip(left + wide * across[inside], top + high * (1 - curve[inside]), strict=True)
        yield f'<polyline {style} points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'
        y = top + 10 + 19 * i
        yield f'<path {style} d="M{left + wide + 16} {y}h22"/>' + _text(left + wide + 44, y + 4, name)


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(text)}</text>'.replace(" >", ">")


def choices_files(docs: Path, made: str) -> dict[Path, str]:
    """The page, beginning with how it was made, and its pictures, by path."""
    drawn = {docs / "choices" / name: text for name, text in choices_pictures().items()}
    return {docs / "choices.md": made + "\n".join(choices_page()) + "\n"} | drawn

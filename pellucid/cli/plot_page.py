"""The page of `pellucid plot`: each panel and each map is a picture of its own, two beside each other or one
below the other as the window has room. The page needs nothing from elsewhere."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from pellucid.cli import plot_drawing as drawing
from pellucid.cli import plot_layers
from pellucid.cli.plot_drawing import COLOURS, Layers, Panel

BRIGHT = ("#63b3ed", "#ff9257", "#5fd39a", "#e58fd4", "#ecc04f", "#b5c0cf", "#a59bff", "#ff8585")
DARK = {
    drawing.INK: "#e4e8ed",
    drawing.FAINT: "#a3b0bf",
    drawing.PAPER: "#1b2129",
    drawing.RULE: "#3a4552",
    plot_layers.NONE: "#2c343e",
    **dict(zip(COLOURS, BRIGHT, strict=True)),
}
"""What a colour of the picture becomes on a dark page. The maps keep theirs: bright is large on any page."""


def html(drawn: Sequence[Panel], names: Sequence[str], layers: Layers = ()) -> bytes:
    data = {
        "names": [{"name": name, "colour": f"var(--run{i % len(COLOURS)})"} for i, name in enumerate(names)],
        "panels": [_data(panel) for panel in drawn],
    }
    page = (Path(__file__).parent / "plot_page.html").read_text("utf-8")
    values = json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    parts = {
        "TITLE": escape(", ".join(names)),
        "LIGHT": _variables(COLOURS),
        "DARK": _variables([DARK[colour] for colour in COLOURS]),
        "REPAINTED": "\n    ".join(_repainted()),
        "NAMES": "\n".join(_key(i, name) for i, name in enumerate(names)),
        "DRAWING": "\n".join(_drawing(drawn, names, layers)),
        "VALUES": values,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], page).encode()


def _variables(colours: Sequence[str]) -> str:
    return " ".join(f"--run{i}: {colour};" for i, colour in enumerate(colours))


def _repainted() -> Iterator[str]:
    """The rules of the dark page: whatever has a colour of the light one."""
    for light, dark in DARK.items():
        for part in ("fill", "stroke"):
            yield f'[{part}="{light}"] {{ {part}: {dark}; }}'


def _key(run: int, name: str) -> str:
    """A run's line beside its name."""
    line = f'<path fill="none" {drawing.stroke(run)} stroke-width="2" d="M0 5h22"/>'
    return f'<li><svg viewBox="0 0 22 10" width="22" height="10">{line}</svg> {escape(name)}</li>'


def _drawing(drawn: Sequence[Panel], names: Sequence[str], layers: Layers) -> Iterator[str]:
    yield '<div class="tiles">'
    for i, panel in enumerate(drawn):
        yield f'{drawing.svg_tag(drawing.TILE_WIDE, drawing.TILE_HIGH)[:-1]} class="panel">'
        yield from drawing.panel_marks(panel, i, drawing.LEFT, drawing.ABOVE)
        yield "</svg>"
    yield "</div>"
    for maps, name in zip(layers, names, strict=False):
        if maps:
            yield f"<h2>{escape(plot_layers.heading(name, names))}</h2>"
            yield '<div class="tiles">'
            for drawn_map in maps:
                yield drawing.svg_tag(drawing.TILE_WIDE, plot_layers.TILE_HIGH)
                yield from plot_layers.map_marks(drawn_map, drawn[0].across(), drawing.LEFT, 0, drawing.WIDE)
                yield "</svg>"
            yield "</div>"


def _data(panel: Panel) -> dict[str, Any]:
    """What the page needs to answer the pointer: the place of the axes, and every curve that is not faint."""
    first, last = panel.across()
    curves = [
        {
            "run": line.run,
            "steps": line.curve.steps.tolist(),
            "values": [float(f"{value:.6g}") for value in line.curve.values],
            "places": [round(float(place), 4) for place in panel.place(line.curve.values)],
        }
        for line in panel.lines
        if line.style in ("line", "points") and len(line.curve)
    ]
    axes = {
        "left": drawing.LEFT,
        "top": drawing.ABOVE,
        "wide": drawing.WIDE,
        "high": drawing.HIGH,
        "first": first,
        "last": last,
    }
    return {"title": panel.title, "curves": curves} | axes

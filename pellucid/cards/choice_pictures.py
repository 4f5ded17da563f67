"""What a choice looks like: its own tables as grids and curves, and these drawn with characters.

A picture computes nothing by itself: masks, rows, angles and biases are the part's, curves the operation's.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pellucid.parts.caps import CapConfig
from pellucid.parts.masks import MaskConfig
from pellucid.parts.mlps import MlpConfig
from pellucid.parts.positions import PositionsConfig, Table
from pellucid.parts.positions.rope import Rope
from pellucid.parts.schedules import ScheduleConfig
from pellucid.reference.caps import apply_cap
from pellucid.reference.ops import find_op
from pellucid.reference.tape import Tape

POSITIONS, HEADS, D_HEAD, D_MODEL = 16, 8, 64, 64
FAR = 128
LONG = 32_768
STEPS = 1000
SHADES = " ░▒▓█"
BLANK = chr(0x2800)
"""The cell of braille without a dot. It is drawn as a space, since a terminal is sent nothing invisible."""
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The dots of a braille character, two across and four down."""


@dataclass(frozen=True)
class Grid:
    """Cells from 0 to 1, or from −1 to 1."""

    title: str
    down: str
    across: str
    cells: Table


@dataclass(frozen=True)
class Lines:
    """Curves over x; beyond `limits` they leave the picture, and NaN is a gap."""

    title: str
    up: str
    across: str
    x: Table
    curves: dict[str, Table]
    limits: tuple[float, float] | None = None
    log: bool = False

    def range(self) -> tuple[float, float]:
        """The lowest and the highest y that the picture shows."""
        low, high = (float(end(list(map(end, self.curves.values())))) for end in (np.nanmin, np.nanmax))
        return self.limits or (low, high)

    def scaled(self) -> dict[str, Table]:
        """The curves with `range` drawn from 0 to 1."""
        change = np.log10 if self.log else np.asarray
        low, high = map(change, self.range())
        return {name: (change(curve) - low) / ((high - low) or 1.0) for name, curve in self.curves.items()}


Picture = Grid | Lines


def pictures(value: Any) -> Iterator[Picture]:
    """The pictures that help to see a choice: none, one or two."""
    if isinstance(value, MaskConfig):
        yield _mask(value)
    elif isinstance(value, PositionsConfig):
        yield from _positions(value)
    elif isinstance(value, MlpConfig) and not value.is_none:
        x = np.linspace(-4, 4, 161)
        curve = {value.activation: find_op(value.activation).forward(x)}
        yield Lines("activation curve", "y", "x", x, curve, limits=(-1.0, 4.0))
    elif isinstance(value, CapConfig) and not value.is_none:
        tape, x = Tape(), np.linspace(-200, 200, 161)
        curve = {value.kind: tape[apply_cap(tape, "capped", tape.constant("scores", x), value)]}
        yield Lines("capped score", "after", "before", x, curve)
    elif isinstance(value, ScheduleConfig):
        yield _schedule(replace(value, warmup=STEPS // 10))


def _mask(mask: MaskConfig) -> Grid:
    here = np.arange(POSITIONS)
    allowed = mask.allowed(here, here)
    cells = np.ones((POSITIONS, POSITIONS)) if allowed is None else allowed.astype(float)
    return Grid("who sees whom", "query", "key", cells)


def _schedule(part: ScheduleConfig) -> Lines:
    step = np.arange(0, STEPS + STEPS // 10, 5)
    factors = np.array([part.factor(int(at), STEPS) for at in step])
    what = f"rate by step, {part.warmup} to warm up, {STEPS} in all"
    return Lines(what, "share of the learning rate", "step", step, {part.kind: factors}, limits=(0.0, 1.0))


def _positions(part: PositionsConfig) -> Iterator[Picture]:
    rows = part.rows(np.arange(2 * POSITIONS), D_MODEL)
    if rows is not None:
        yield Grid("rows added to the embedding", "position", "channel", rows)
    if (rates := _rates(part)) is not None:
        pair, plain = np.arange(len(rates)), _rates(Rope())
        yield Lines("turn per position", "radians", "pair of channels", pair, {part.kind: rates}, log=True)
        if plain is not None and not np.allclose(rates, plain, equal_nan=True):
            share = {part.kind: rates / plain}
            yield Lines("turn beside rope's", "rope's = 1", "pair of channels", pair, share, log=True)
    distances = np.arange(-FAR, FAR + 1)
    if (bias := part.bias(distances[FAR:], HEADS)) is not None:
        curves = {f"{part.kind}, head {head}": row for head, row in enumerate(bias)}
        yield Lines(f"bias of {HEADS} heads by distance", "bias", "distance", distances[FAR:], curves)
    if (ids := part.bias_ids(distances)) is not None:
        yield Lines(
            "learned bias by distance",
            "row of the table",
            "distance (below 0: to come)",
            distances,
            {part.kind: ids},
        )


def _rates(part: PositionsConfig) -> Table | None:
    """How far each pair turns per position in a sequence of `LONG`; not a number for pairs that stay."""
    rotation = part.rotation(np.arange(LONG), D_HEAD)
    if rotation is None:
        return None
    rates = np.full(D_HEAD // 2, np.nan)
    rates[: rotation.angles.shape[-1]] = rotation.angles[-1] / (LONG - 1)
    return np.where(rates > 0, rates, np.nan)


def drawn(picture: Picture, width: int = 56, height: int = 10) -> Iterator[str]:
    """A picture in characters; curves in so many columns and lines, beside and above their scales."""
    return _drawn_grid(picture) if isinstance(picture, Grid) else _drawn_lines(picture, width, height)


def _drawn_grid(grid: Grid) -> Iterator[str]:
    yield f"{grid.title}: {grid.down} ↓, {grid.across} →"
    signed = bool((grid.cells < 0).any())
    for row in grid.cells[:POSITIONS]:
        if signed:
            shades = np.minimum((row + 1) / 2 * len(SHADES), len(SHADES) - 1).astype(int)
            yield "".join(SHADES[shade] for shade in shades)
        else:
            yield " ".join("█" if cell else "·" for cell in row)


def _drawn_lines(lines: Lines, width: int, height: int) -> Iterator[str]:
    """Curves as dots of braille, every column of dots one x."""
    dots = np.zeros((4 * height, 2 * width), dtype=bool)
    across = np.linspace(lines.x[0], lines.x[-1], 2 * width)
    for curve in lines.scaled().values():
        down = (1 - np.interp(across, lines.x, curve)) * (4 * height - 1)
        inside = (down > -0.5) & (down < 4 * height - 0.5)
        dots[down[inside].round().astype(int), np.flatnonzero(inside)] = True
    low, high = lines.range()
    yield f"{lines.title}: {lines.up} ↑, {lines.across} →"
    for i in range(height):
        cells = dots[4 * i : 4 * i + 4].reshape(4, width, 2).transpose(1, 0, 2)
        label = {0: f"{high:.3g}", height - 1: f"{low:.3g}"}.get(i, "")
        drawing = "".join(chr(ord(BLANK) + int((cell * DOTS).sum())) for cell in cells)
        yield f"{label:>8} │{drawing}".replace(BLANK, " ").rstrip()
    yield f"{'':>9}└{'─' * width}"
    yield f"{'':>10}{lines.x[0]:<{width // 2}g}{lines.x[-1]:>{width // 2}g}"

"""A whole run or a whole value at a glance: the tree of names, or a window of one tensor."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from pellucid.explain.expression import figure
from pellucid.explain.trace import Trace
from pellucid.names import describe
from pellucid.reference.op import Array, Index, Shape

_LAYER = re.compile(r"^((?:d\.)?blocks)\.(\d+)\.")
WINDOW = 8


def tree(shapes: Mapping[str, Shape], also: Mapping[str, str] | None = None) -> Iterator[str]:
    """Names as an indented tree with axes and sizes; layers that repeat the first are told once."""
    layers = {int(found[2]) for name in shapes if (found := _LAYER.match(name))}
    shown = {name: shape for name, shape in shapes.items() if _layer(name) in (None, 0)}
    above: list[str] = []
    for name, shape in shown.items():
        *scope, leaf = _split(name)
        for depth, part in enumerate(scope):
            if above[: depth + 1] != scope[: depth + 1]:
                repeats = f"  … blocks.{max(layers)} alike" if part == "blocks.0" and len(layers) > 1 else ""
                yield f"{'  ' * depth}{part}{repeats}"
        above = scope
        about = describe(name)
        axes = about.axes if about and len(about.axes) == len(shape) else ("",) * len(shape)
        sizes = " ".join(
            f"{axis}={size}" if axis not in ("", "1") else str(size)
            for axis, size in zip(axes, shape, strict=True)
        )
        remark = (also or {}).get(name, about.meaning if about else "")
        yield f"{'  ' * len(scope) + leaf:<30}{f'[{sizes}]':<28}{remark}".rstrip()


def _layer(name: str) -> int | None:
    found = _LAYER.match(name)
    return int(found[2]) if found else None


def _split(name: str) -> list[str]:
    """blocks.0.attn.q_proj.weight: blocks.0, attn, q_proj.weight; outside the blocks, the name."""
    found = _LAYER.match(name)
    if not found:
        return [name]
    part, _, rest = name[found.end() :].partition(".")
    return [f"{found[1]}.{found[2]}", part, rest] if rest else [f"{found[1]}.{found[2]}", part]


def overview(trace: Trace) -> Iterator[str]:
    """Every value of a run by name: the forward pass as a tree, then how much more there is."""
    tape = trace.tape
    for title, roles in (("parameters", ("param",)), ("values", ("leaf", "act"))):
        yield f"{title}:"
        yield from tree(
            {
                name: tape.values[name].shape
                for name, role in tape.roles.items()
                if role in roles and "@" not in name and not name.startswith("d.")
            }
        )
    gradients = sum(role == "grad" for role in tape.roles.values())
    updates = sum(role == "update" for role in tape.roles.values())
    same = ", ".join(f"{name} = {target}" for name, target in tape.aliases.items() if _plain(name))
    if same:
        yield f"other names: {same}"
    if gradients:
        yield f"and {gradients} gradients: d.NAME, and d.NAME.via.USER where a value has several users"
    if updates:
        yield f"and {updates} values of updates: NAME@k after k updates"


def _plain(name: str) -> bool:
    return not name.startswith("d.") and "@" not in name and _layer(name) in (None, 0)


def window(trace: Trace, name: str, digits: int = 5) -> Iterator[str]:
    """A value as tables of its last two axes, cut to a window, with what the whole amounts to."""
    value, about = trace.value(name), trace.about(name)
    axes = about.axes
    symbol = about.symbol if about.symbol != name else ""
    sizes = " ".join(f"{a}={size}" for a, size in zip(axes, value.shape, strict=True))
    told = f"{symbol}: {about.meaning}" if symbol and about.meaning else about.meaning
    yield f"{name} [{sizes}]   {told}".rstrip()
    if about.transposed and value.ndim == 2:
        value, axes = value.T, axes[::-1]
        yield f"shown as the formulas use it, {symbol}[{','.join(axes)}]"
    if value.size == 0:
        yield "(empty)"
        return
    grid = value.reshape((1,) * max(0, 2 - value.ndim) + value.shape)
    names = ("", "")[: max(0, 2 - value.ndim)] + axes
    for lead in list(np.ndindex(grid.shape[:-2]))[:WINDOW]:
        here = [f"{a}={i}" for a, i, n in zip(names, lead, grid.shape, strict=False) if n > 1]
        if here:
            yield f"{','.join(here)}:"
        yield from _table(trace, name, grid[lead], names[-2:], digits)
    rest = int(np.prod(grid.shape[:-2])) - WINDOW
    if rest > 0:
        yield f"… and {rest} more such tables"
    finite = value[np.isfinite(value)]
    if value.size > WINDOW * WINDOW and finite.size:
        least, most = _extreme(trace, name, np.nanargmin), _extreme(trace, name, np.nanargmax)
        yield (
            f"of all {value.size:,}: sum {figure(float(finite.sum()), digits)}, "
            f"smallest {figure(least[1], digits)} at {least[0]}, "
            f"largest {figure(most[1], digits)} at {most[0]}"
        )


def _extreme(trace: Trace, name: str, find: Callable[[Any], Any]) -> tuple[str, float]:
    value = trace.value(name)
    index: Index = tuple(int(i) for i in np.unravel_index(int(find(value)), value.shape))
    return trace.address(name, index), float(value[index])


def _table(trace: Trace, name: str, grid: Array, axes: tuple[str, ...], digits: int) -> Iterator[str]:
    def heading(axis: str, i: int) -> str:
        if not axis:
            return ""
        label = trace.label(name, axis, i)
        return f"{axis}={i}" + (f" {label}" if label is not None else "")

    rows, columns = (_cut(size) for size in grid.shape)
    table = [["", *("…" if j is None else heading(axes[1], j) for j in columns)]]
    for i in rows:
        numbers = ("…" if i is None or j is None else _number(grid[i, j], digits) for j in columns)
        table.append(["…" if i is None else heading(axes[0], i), *numbers])
    widths = [max(len(row[j]) for row in table) for j in range(len(table[0]))]
    for row in table:
        yield "  " + "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def _number(value: Any, digits: int) -> str:
    return str(int(value)) if value.dtype.kind in "iu" else figure(float(value), digits)


def _cut(size: int) -> list[int | None]:
    """The places that fit a window: all, or the first ones, a gap, and the last."""
    if size <= WINDOW:
        return list(range(size))
    return [*range(WINDOW - 1), None, size - 1]

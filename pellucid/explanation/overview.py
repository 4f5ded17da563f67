"""The overview of a run: the tree of its names."""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from pellucid.base.names import Name, describe
from pellucid.reference.op import Shape

if TYPE_CHECKING:
    from pellucid.explanation.trace import Trace

_LAYER = re.compile(r"^((?:d\.)?blocks)\.(\d+)\.")


def format_tree(
    shapes: Mapping[str, Shape],
    also: Mapping[str, str] | None = None,
    described: Mapping[str, Name] = MappingProxyType({}),
) -> Iterator[str]:
    """Yields names as an indented tree with axes and sizes; layers like the first are listed once.

    `also` has remarks of its own, `described` the entries that steps of a tape added to the glossary.
    """
    layers = {int(found[2]) for name in shapes if (found := _LAYER.match(name))}
    shown = {name: shape for name, shape in shapes.items() if _find_layer(name) in (None, 0)}
    above: list[str] = []
    for name, shape in shown.items():
        *scope, leaf = _split(name)
        for depth, part in enumerate(scope):
            if above[: depth + 1] != scope[: depth + 1]:
                repeats = f"  … blocks.{max(layers)} alike" if part == "blocks.0" and len(layers) > 1 else ""
                yield f"{'  ' * depth}{part}{repeats}"
        above = scope
        about = describe(name, described)
        axes = about.axes if about and len(about.axes) == len(shape) else ("",) * len(shape)
        sizes = " ".join(
            f"{axis}={size}" if axis not in ("", "1") else str(size)
            for axis, size in zip(axes, shape, strict=True)
        )
        remark = (also or {}).get(name, about.meaning if about else "")
        yield f"{'  ' * len(scope) + leaf:<29} {f'[{sizes}]':<27} {remark}".rstrip()


def _find_layer(name: str) -> int | None:
    found = _LAYER.match(name)
    return int(found[2]) if found else None


def _split(name: str) -> list[str]:
    """Splits blocks.0.attn.q_proj.weight into blocks.0, attn, q_proj.weight; other names stay whole."""
    found = _LAYER.match(name)
    if not found:
        return [name]
    part, _, rest = name[found.end() :].partition(".")
    return [f"{found[1]}.{found[2]}", part, rest] if rest else [f"{found[1]}.{found[2]}", part]


def format_overview(trace: "Trace") -> Iterator[str]:
    """Yields every value of a run by name: the forward pass as a tree, then the number of other values."""
    tape = trace.tape
    for title, roles in (("parameters", ("param",)), ("values", ("leaf", "act"))):
        yield f"{title}:"
        yield from format_tree(
            {
                name: tape.values[name].shape
                for name, role in tape.roles.items()
                if role in roles and "@" not in name and not name.startswith("d.")
            },
            described=tape.about,
        )
    gradients = sum(role == "grad" for role in tape.roles.values())
    updates = sum(role == "update" for role in tape.roles.values())
    same = ", ".join(f"{name} = {target}" for name, target in tape.aliases.items() if _is_plain(name))
    if same:
        yield f"other names: {same}"
    if gradients:
        yield f"and {gradients} gradients: d.NAME, and d.NAME.via.USER where a value has several users"
    if updates:
        yield f"and {updates} values of updates: NAME@k after k updates"


def _is_plain(name: str) -> bool:
    return not name.startswith("d.") and "@" not in name and _find_layer(name) in (None, 0)

"""`names`: every value of a trace with its shape; before there is a trace, the shapes that it will have."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated, Any

from pellucid.base.errors import UsageError
from pellucid.base.names import Name, describe
from pellucid.base.schema import Length
from pellucid.explanation.shapes import value_shapes
from pellucid.explanation.trace import Trace
from pellucid.server.explorer.held_trace import HeldTrace
from pellucid.server.explorer.session import Session

LARGEST = 400_000
"""Bytes of an answer: further names are counted, and listed under a prefix of their own."""
ENTRY, ROW = 48, 48
"""Bytes of the marks, the shape, the role and the operation of a name; and of the keys of a glossary row."""
_ROW = ((re.compile(r"\bblocks\.\d+\."), "blocks.L."), (re.compile(r"(@|\bupdate )\d+\b"), r"\1k"))
"""What stands for a layer and for an update in a glossary row: blocks.3.attn.q@2 is blocks.L.attn.q@k."""

Entry = list[Any]


def answer(
    session: Session, trace: HeldTrace | None = None, under: Annotated[str, Length(400)] = ""
) -> dict[str, Any]:
    """Returns [name, shape, role, operation, step] of every value that begins with `under`, in program order;
    the glossary row of each name once, `blocks.L.attn.q@k` for all layers and updates; and in `omitted` the
    number of values that do not fit into one answer."""
    if trace is None and session.newest is None:
        return _list_shapes(session, under)
    held = session.get_trace(None) if trace is None else trace
    return _list_values(held.trace, under)


def _list_values(trace: Trace, under: str) -> dict[str, Any]:
    tape = trace.tape
    place = {name: i for i, name in enumerate(tape.steps)}
    values: list[Entry] = [
        [name, list(value.shape), tape.roles[name], step.op.name if step else None, place.get(name)]
        for name, value in tape.values.items()
        if name.startswith(under)
        for step in (tape.steps.get(name),)
    ]
    room, aliases = LARGEST, dict[str, str]()
    for name, target in tape.aliases.items():
        room -= len(name.encode()) + len(target.encode()) + 8
        if name.startswith(under) and room > LARGEST // 2:
            aliases[name] = target
    return _fit(values, trace.about, room) | {"aliases": aliases, "steps": len(place)}


def _list_shapes(session: Session, under: str) -> dict[str, Any]:
    """Returns the parameters, and the values of the forward pass on the prompt that is being run."""
    if session.model is None:
        raise UsageError("there is no trace yet: run a prompt first.")
    config, tokens = session.model.config, len(session.pending)
    parameters: Iterable[tuple[str, Any]] = config.parameters().items()
    values = value_shapes(config, tokens, 1).items() if tokens else ()
    entries: list[Entry] = [
        [name, list(shape), role, None, None]
        for role, shapes in (("param", parameters), ("act", values))
        for name, shape in shapes
        if name.startswith(under)
    ]
    return _fit(entries, lambda name: describe(name) or Name(name, (), name, ""), LARGEST) | {
        "aliases": {},
        "steps": 0,
    }


def _fit(entries: list[Entry], describe_name: Any, room: int) -> dict[str, Any]:
    """Returns the entries that fit into `room` bytes, with their glossary rows."""
    about: dict[str, dict[str, Any]] = {}
    for count, (name, *_) in enumerate(entries):
        row = _name_row(name)
        room -= len(name.encode()) + ENTRY
        if row not in about and room > 0:
            about[row] = _describe_row(describe_name(name))
            room -= len(row.encode()) + ROW + sum(len(str(text).encode()) for text in about[row].values())
        if room <= 0:
            return {"values": entries[:count], "about": about, "omitted": len(entries) - count}
    return {"values": entries, "about": about, "omitted": 0}


@lru_cache(16_384)
def _name_row(text: str) -> str:
    for pattern, plain in _ROW:
        text = pattern.sub(plain, text)
    return text


def _describe_row(entry: Name) -> dict[str, Any]:
    return {
        "symbol": _name_row(entry.symbol),
        "axes": list(entry.axes),
        "meaning": _name_row(entry.meaning),
    }

"""Addresses: NAME[i,j,…] in storage order, or NAME[t=1,v=2] by axis letter in any order."""

import re

from pellucid.errors import AddressError, did_you_mean
from pellucid.explain.trace import Trace
from pellucid.reference.op import Index

_ADDRESS = re.compile(r"\s*(?P<name>[^\[\]\s]+)\s*(\[(?P<index>[^\[\]]*)\])?\s*")


def parse(trace: Trace, address: str) -> tuple[str, Index | None]:
    """The value's name on the tape, and the cell; None where the address names the whole value."""
    found = _ADDRESS.fullmatch(address)
    if not found:
        raise AddressError(
            f"{address!r} is no address; write NAME, NAME[1,0] or NAME[t=1,v=2], "
            f"for example {_example(trace)}."
        )
    name = _name(trace, found["name"])
    if found["index"] is None:
        value = trace.value(name)
        return name, (0,) * value.ndim if value.size == 1 else None
    return name, _index(trace, name, found["index"])


def _name(trace: Trace, asked: str) -> str:
    tape = trace.tape
    if asked in tape:
        return tape.resolve(asked)
    known = [*tape.values, *tape.aliases]
    hint = did_you_mean(asked, known, 3) or " Without --at, the names are listed."
    base, _, updates = asked.removeprefix("d.").partition("@")
    if base in ("loss", "nll", "lse") and "loss" not in tape:
        hint = " There is no loss: give --target."
    elif asked.startswith("d.") and base in tape and not any(name.startswith("d.") for name in tape.values):
        hint = " This trace has no gradients: give --target."
    elif asked.startswith("d.") and updates and f"{base}@{updates}" in tape:
        hint = " No backward pass follows the last update: give one --steps more."
    elif asked.startswith("d.") and asked.removeprefix("d.") in tape:
        hint = " It has no gradient: the loss does not depend on it."
    elif updates and base in tape:
        hint = " This trace has not so many updates: give --update and --steps."
    raise AddressError(f"no value called {asked!r} here.{hint}")


def _index(trace: Trace, name: str, text: str) -> Index:
    shape, axes = trace.value(name).shape, trace.about(name).axes
    wrong = AddressError(f"{name}[{text}] is not a cell: {_shape(trace, name)}")
    entries = [entry.strip() for entry in text.split(",")] if text.strip() else []
    if any("=" in entry for entry in entries):
        given = {axis.strip(): place for axis, _, place in (entry.partition("=") for entry in entries)}
        if len(given) != len(entries) or not set(given) <= set(axes):
            raise wrong
        places = [given.get(axis, "0" if size == 1 else "") for axis, size in zip(axes, shape, strict=True)]
    elif len(entries) == len(shape):
        places = entries
    elif len(entries) == sum(size > 1 for size in shape):
        short = iter(entries)
        places = [next(short) if size > 1 else "0" for size in shape]
    else:
        raise wrong
    if not all(place.strip().isascii() and place.strip().isdigit() for place in places):
        raise wrong
    index = tuple(int(place) for place in places)
    if any(i >= size for i, size in zip(index, shape, strict=True)):
        raise wrong
    return index


def _shape(trace: Trace, name: str) -> str:
    """What the value's axes are, with the tokens that stand on them."""
    shape, axes = trace.value(name).shape, trace.about(name).axes
    if not shape:
        return f"{name} is one number; leave the brackets away."
    words = []
    for axis, size in zip(axes, shape, strict=True):
        labels = [trace.label(name, axis, i) for i in range(min(size, 8))]
        tokens = f" ({' '.join(str(text) for text in labels)}{' …' if size > 8 else ''})" if labels[0] else ""
        words.append(f"{axis} has 0…{size - 1}{tokens}" if size > 1 else f"{axis} has only 0")
    middle = tuple(size - 1 for size in shape)
    return f"{'; '.join(words)}. For example {trace.address(name, middle)}."


def _example(trace: Trace) -> str:
    name = "probs" if "probs" in trace.tape else next(iter(trace.tape.values))
    return trace.address(name, tuple(size - 1 for size in trace.value(name).shape))

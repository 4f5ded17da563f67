"""Addresses: NAME, NAME[1,0] in storage order, or NAME[t=1,v=2] by axis letter in any order.

An axis that is absent, or is given as `:`, is whole, so NAME[h=3] is one head's matrix. An index is a number
or the text of a token on its axis: NAME[t=it,s=animal]. A bare word matches with and without a space before
it; "it" in quotes, or with its space (·it), is exactly that token.
"""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pellucid.base.arguments import check_text
from pellucid.base.errors import AddressError, did_you_mean, show
from pellucid.base.names import asks_for_heads
from pellucid.explanation.trace import Trace, format_index
from pellucid.reference.op import Index

_ADDRESS = re.compile(r"\s*+(?P<name>[^\[\]\s]++)\s*+(\[(?P<index>.*)\])?\s*+", re.DOTALL)
_ENTRY = re.compile(
    r"""\s*+(?:(?P<axis>\w++)\s*+=)?(?P<place>\s*+(?:"[^"]++"|'[^']++')\s*+|[^,\[\]]*+)(?P<end>,|$)""",
    re.DOTALL,
)
SPACES = " ·Ġ▁"
"""A space before a word: itself, as it is displayed, and as tokenizer files store it."""
LISTED = 8
"""The largest number of tokens of an axis, or positions of a token, in a message."""


@dataclass(frozen=True)
class Address:
    """A value, or a part of it: one index for each axis, None for a whole axis."""

    name: str
    index: tuple[int | None, ...]

    @property
    def cell(self) -> Index | None:
        """The index of a single number; None where the part holds more than one."""
        cell = tuple(i for i in self.index if i is not None)
        return cell if len(cell) == len(self.index) else None


def parse(trace: Trace, address: str) -> Address:
    """Returns the part of a trace that an address names. Axes of length 1 may be omitted."""
    found = _ADDRESS.fullmatch(check_text("at", address))
    entries = _split_entries(found["index"] or "") if found else None
    if not found or entries is None:
        raise AddressError(
            f"{show(address)} is not an address; write NAME, NAME[1,0] or NAME[t=1,v=2], "
            f"for example {_make_example(trace)}."
        )
    name = _find_name(trace, found["name"])
    return Address(name, _read_index(trace, name, found["index"] or "", entries))


def parse_cell(trace: Trace, address: str) -> tuple[str, Index]:
    """Returns the value and the index of an address that names one number."""
    part = parse(trace, address)
    if part.cell is None:
        raise AddressError(f"{address!r} is more than one number: {describe_missing(trace, part)}.")
    return part.name, part.cell


def _split_entries(text: str) -> list[tuple[str | None, str]] | None:
    """Returns the axis (None where absent) and the text of each index; None where they cannot be read."""
    entries, at = list[tuple[str | None, str]](), 0
    if not text.strip():
        return entries
    while True:
        entry = _ENTRY.match(text, at)
        if entry is None:
            return None
        entries.append((entry["axis"], entry["place"]))
        at = entry.end()
        if not entry["end"]:
            break
    return entries


def _find_name(trace: Trace, asked: str) -> str:
    tape = trace.tape
    if asked in tape:
        return tape.resolve(asked)
    known = [*tape.values, *tape.aliases]
    hint = (
        did_you_mean(asked[:200], known, 3)
        or " `pellucid explain MODEL PROMPT` lists the names (in Python: print the trace)."
    )
    base, _, updates = asked.removeprefix("d.").partition("@")
    if base in ("loss", "nll", "lse") and "loss" not in tape:
        hint = " There is no loss: give a target (--target)."
    elif asks_for_heads(asked) and not any(map(asks_for_heads, tape.values)):
        hint = " This trace does not split attn_out into heads: trace the prompt with by_head (--by-head)."
    elif asked.startswith("d.") and base in tape and not any(name.startswith("d.") for name in tape.values):
        hint = " This trace has no gradients: give a target (--target)."
    elif asked.startswith("d.") and updates and f"{base}@{updates}" in tape:
        hint = " No backward pass follows the last update: give one more step (--steps)."
    elif asked.startswith("d.") and asked.removeprefix("d.") in tape:
        hint = " It has no gradient: the loss does not depend on it."
    elif updates and base in tape:
        hint = " This trace has fewer updates: give update and steps (--update, --steps)."
    raise AddressError(f"this trace has no value {show(asked)}.{hint}")


def _read_index(
    trace: Trace, name: str, text: str, entries: list[tuple[str | None, str]]
) -> tuple[int | None, ...]:
    shape, axes = trace.value(name).shape, trace.about(name).axes
    named = [axis for axis, _ in entries if axis is not None]
    whole = ["0" if size == 1 else ":" for size in shape]
    wrong = ""
    if named and len(named) < len(entries):
        wrong = "give every index by its axis, or every one in order"
    elif len(set(named)) < len(named):
        wrong = f"{next(axis for axis in named if named.count(axis) > 1)} is given twice"
    elif unknown := [axis for axis in named if axis not in axes]:
        wrong = f"there is no axis {unknown[0]}"
    elif named:
        given = {axis: place for axis, place in entries if axis is not None}
        places = [given.get(axis, plain) for axis, plain in zip(axes, whole, strict=True)]
    elif len(entries) == len(shape):
        places = [place for _, place in entries]
    elif len(entries) <= sum(size > 1 for size in shape):  # in order, of the axes that have a choice
        short = iter([place for _, place in entries])
        places = [next(short, plain) if size > 1 else plain for size, plain in zip(shape, whole, strict=True)]
    else:
        wrong = f"{len(entries)} indices are too many"
    if wrong:
        axes_and_example = _describe_shape(trace, name)
        raise AddressError(f"{name}[{_shorten(text)}] is not part of {name}: {wrong}. {axes_and_example}")
    index = list[int | None]()
    for axis, place in zip(axes, places, strict=True):
        index.append(_find_place(trace, name, axis, place, index))
    return tuple(index)


def _find_place(trace: Trace, name: str, axis: str, given: str, before: list[int | None]) -> int | None:
    """Returns the index on an axis, which may be given by the text of its token; None for the whole axis.
    `before` are the indices of the axes before it: the prompt b decides which tokens there are."""
    text, size = given.strip(), trace.size(name, axis)
    if text == ":":
        return None
    if text.isascii() and text.isdigit() and len(text) < 19:
        if int(text) < size:
            return int(text)
        raise AddressError(f"{name} has no {axis}={text}: {_describe_axis(trace, name, axis, before)}.")
    tokens = {i: token for i, token in enumerate(trace.texts(name, axis, before)) if token is not None}
    if not text or not tokens:
        given = f"{axis}={_shorten(text)}"
        what = f"{given} is not an index of {name}" if text else f"the index of {axis} is missing"
        raise AddressError(f"{what}: {_describe_axis(trace, name, axis, before)}.")
    found = _find_spelling(tokens, given)
    if len(found) == 1:
        return found[0]
    if found:
        places = _format_places(axis, tokens, found)
        raise AddressError(
            f"{_shorten(text)} is the token at {places}: give the number, for example {axis}={found[0]}."
        )
    near = _format_places(axis, tokens, _find_similar(tokens, _unquote(text)[:80]))
    hint = f"the nearest are {near}" if near else _describe_axis(trace, name, axis, before)
    raise AddressError(f"no token {_shorten(text)} on the axis {axis} of {name}: {hint}.")


def _shorten(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"


def _format_places(axis: str, tokens: dict[int, str], places: list[int]) -> str:
    return ", ".join(f"{axis}={i} {tokens[i]}" for i in places[:LISTED]) + " …" * (len(places) > LISTED)


def _find_similar(tokens: dict[int, str], text: str) -> list[int]:
    """Returns the indices of the tokens with a similar spelling."""
    words = dict[str, list[int]]()
    for i, token in tokens.items():
        words.setdefault(_strip_space(token), []).append(i)
    close = difflib.get_close_matches(_strip_space(text), words, n=LISTED, cutoff=0.5)
    return [i for word in close for i in words[word]][:LISTED]


def _unquote(text: str) -> str:
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] and text[0] in "\"'" else text


def _find_spelling(tokens: dict[int, str], given: str) -> list[int]:
    """Returns the indices of the tokens with this text: exactly, or as a word with any space before it."""
    text = given.strip()
    quoted = _unquote(text) != text
    wanted = _unquote(text) if quoted else text if text[0] in SPACES else given.rstrip()
    spaced = _normalize_spaces(wanted)
    exactly = [i for i, token in tokens.items() if _normalize_spaces(token) == spaced]
    if quoted or text[0] in SPACES or (exactly and wanted[0] in SPACES):
        return exactly
    return [i for i, token in tokens.items() if text in (token, _strip_space(token))]


def _normalize_spaces(token: str) -> str:
    """Returns a token with a plain space for each space mark."""
    return re.sub(f"[{SPACES}]", " ", token)


def _strip_space(token: str) -> str:
    return token[1:] if len(token) > 1 and token[0] in SPACES else token


def _describe_shape(trace: Trace, name: str) -> str:
    """Describes the axes of a value, with their tokens, and gives an example."""
    shape, axes = trace.value(name).shape, trace.about(name).axes
    if not shape:
        return f"{name} is one number; omit the brackets."
    last = tuple(size - 1 for size in shape)
    words = "; ".join(_describe_axis(trace, name, axis) for axis in axes)
    return f"{words}. For example {trace.address(name, last)}."


def _describe_axis(trace: Trace, name: str, axis: str, index: Sequence[int | None] = ()) -> str:
    size, labels = trace.size(name, axis), trace.texts(name, axis, index)[:LISTED]
    tokens = f" ({' '.join(str(text) for text in labels)}{' …' * (size > LISTED)})" if any(labels) else ""
    return (
        f"{axis} has 0…{size - 1}{tokens}"
        if size > 1
        else f"{axis} has only 0"
        if size
        else f"{axis} is empty"
    )


def describe_missing(trace: Trace, part: Address) -> str:
    """Returns which axes an address of one number must name as well: "h and s are missing, for example …"."""
    free = [axis for axis, i in zip(trace.about(part.name).axes, part.index, strict=True) if i is None]
    full = tuple(0 if i is None else i for i in part.index)
    verb = "are" if len(free) > 1 else "is"
    return f"{' and '.join(free)} {verb} missing, for example {trace.address(part.name, full)}"


def _make_example(trace: Trace) -> str:
    if not trace.tape.values:
        return "probs[t=1,v=3]"
    name = "probs" if "probs" in trace.tape else next(iter(trace.tape.values))
    return trace.address(name, tuple(size - 1 for size in trace.value(name).shape))


def format_address(trace: Trace, part: Address) -> str:
    """Returns the address of a part: NAME[h=3,t=8], without the axes that are whole or of length 1."""
    shape, axes = trace.value(part.name).shape, trace.about(part.name).axes
    fixed = [(a, i) for a, i, n in zip(axes, part.index, shape, strict=True) if i is not None and n > 1]
    return part.name + format_index(fixed)

"""Somebody's arrays: a .npz or .safetensors file, and the names and axes by which they become ours."""

import contextlib
import math
import re
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.errors import FileError, PellucidError, UsageError, did_you_mean
from pellucid.explain.local_replay import Recorded
from pellucid.explain.trace import Trace
from pellucid.files import Damaged, need, strict
from pellucid.reference.op import Array, Shape

SUFFIXES = (".npz", ".safetensors")
MOST_BYTES = 2**33
"""A file that says it holds more, unpacked, is not opened: a few kilobytes can claim anything."""

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?"} | {
    f"{sign}{bits}": f"<{sign.lower()}{bits // 8}" for sign in "IU" for bits in (8, 16, 32, 64)
}


def read(path: Path) -> dict[str, Recorded]:
    """Every array of the file by its own name, widened, with the type in which it is held."""
    with strict(path), _nothing_else(path):
        arrays = _npz(path) if path.suffix == ".npz" else _safetensors(path)
        return {name: _recorded(name, value, type) for name, (value, type) in arrays.items()}


@contextlib.contextmanager
def _nothing_else(path: Path) -> Iterator[None]:
    """A stranger's bytes can break a library's reader in any way; a person is told of one kind only."""
    try:
        yield
    except (PellucidError, Damaged):
        raise
    except FileNotFoundError:
        raise FileError(f"there is no file {path}.") from None
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}.") from None
    except Exception as error:
        raise FileError(f"{path} cannot be read as {path.suffix}: {error}.") from None


def _npz(path: Path) -> dict[str, tuple[Array, str]]:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        need(
            sum(member.file_size for member in members) <= MOST_BYTES, "it says that it unpacks to over 8 GiB"
        )
        return {member.filename.removesuffix(".npy"): _npy(archive, member) for member in members}


def _npy(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[Array, str]:
    """One array, after its head has been held against the bytes that follow."""
    name = member.filename.removesuffix(".npy")
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        need(version in ((1, 0), (2, 0)), f"{name!r} has the array format {version}")
        head = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = head(file)
        need(
            not dtype.hasobject, f"{name!r} holds Python objects, which are never loaded; save plain numbers"
        )
        bytes = math.prod(shape) * dtype.itemsize
        need(
            all(size >= 0 for size in shape) and bytes <= member.file_size,
            f"{name!r} says {shape} of {dtype}, and the file has {member.file_size} bytes of it",
        )
        data = file.read(bytes)
    need(len(data) == bytes, f"{name!r} ends early")
    # NumPy has no bfloat16: those who write one leave two bytes without a meaning
    half = dtype.kind == "V" and dtype.itemsize == 2
    array = np.frombuffer(data, np.dtype("<u2") if half else dtype)
    array = array.reshape(shape[::-1]).T if fortran else array.reshape(shape)
    return array, "bfloat16" if half else dtype.name


def _safetensors(path: Path) -> dict[str, tuple[Array, str]]:
    from safetensors import deserialize

    arrays = {}
    for name, entry in deserialize(path.read_bytes()):  # type: ignore[no-untyped-call]
        type = entry["dtype"]
        need(type in _TYPES, f"{name!r} has the type {type}, which is not read here")
        array = np.frombuffer(entry["data"], np.dtype(_TYPES[type])).reshape(entry["shape"])
        arrays[name] = array, "bfloat16" if type == "BF16" else array.dtype.name
    return arrays


def _recorded(name: str, value: Array, type: str) -> Recorded:
    if type == "bfloat16":
        return Recorded((value.astype(np.uint32) << 16).view(np.float32).astype(np.float64), type)
    need(value.dtype.kind in "fiub", f"{name!r} is of {type}, which are no numbers")
    if value.dtype.kind != "f":
        return Recorded(value.astype(np.int64), type)
    need(value.dtype.itemsize <= 8, f"{name!r} is of {type}; save it as float64")
    return Recorded(value.astype(np.float64), held_in(value))


def held_in(value: Array) -> str:
    """The type in which numbers were made, where the array is wider than they are.

    NumPy users widen bfloat16 to save it. Sixteen different numbers that all end in zeros are no accident.
    """
    type = value.dtype.name
    finite = value[np.isfinite(value)]
    if type == "float16" or np.unique(finite[:4096]).size < 16:
        return type
    narrow = finite.astype(np.float32)
    if type == "float64" and not np.array_equal(narrow, finite):
        return type
    if not (narrow.view(np.uint32) & 0xFFFF).any():
        return "bfloat16"
    with np.errstate(over="ignore"):
        return "float16" if np.array_equal(narrow.astype(np.float16), narrow) else "float32"


# ---- their names and ours


@dataclass(frozen=True)
class Rule:
    """Their name as a pattern, `h.{l}.attn.q`, ours with the same letters, and their axes if they differ."""

    theirs: str
    ours: str
    axes: str | None = None

    def named(self, name: str) -> str | None:
        pattern = "".join(
            f"(?P<{part[1:-1]}>[^.]+)" if part.startswith("{") else re.escape(part)
            for part in re.split(r"(\{\w+\})", self.theirs)
        )
        found = re.fullmatch(pattern, name)
        return re.sub(r"\{(\w+)\}", lambda letter: found[letter[1]], self.ours) if found else None


def read_rules(path: Path) -> list[Rule]:
    """`"h.{l}.attn.q" = "blocks.{l}.attn.q"`, or `= {name = "…", axes = "t b (h d)"}`."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise FileError(f"{path} is not TOML: {error}.") from None
    with strict(path):
        return [_rule(theirs, entry) for theirs, entry in data.items()]


def _rule(theirs: str, entry: Any) -> Rule:
    table = {"name": entry} if isinstance(entry, str) else entry
    need(
        isinstance(table, dict)
        and isinstance(table.get("name"), str)
        and set(table) <= {"name", "axes"}
        and isinstance(table.get("axes", ""), str),
        f'{theirs!r} needs our name, "…" or {{name = "…", axes = "…"}} (a name with dots stands in quotes)',
    )
    letters, known = (re.findall(r"\{(\w+)\}", text) for text in (table["name"], theirs))
    need(len(set(known)) == len(known), f"{theirs!r} has a letter twice")
    need(all(letter.isidentifier() for letter in known), f"{theirs!r} has letters that are no names")
    need(set(letters) <= set(known), f"{table['name']!r} has a letter that {theirs!r} lacks")
    return Rule(theirs, table["name"], table.get("axes"))


def ours(
    theirs: Mapping[str, Recorded], trace: Trace, rules: list[Rule]
) -> tuple[dict[str, Recorded], list[str]]:
    """Their arrays under our names and axes, and the names that are nobody's here."""
    found: dict[str, Recorded] = {}
    came_from: dict[str, str] = {}
    unmatched = []
    for name, entry in theirs.items():
        rule, called = next(
            ((rule, to) for rule in rules if (to := rule.named(name)) is not None), (Rule(name, name), name)
        )
        if called not in trace.tape:
            if called != name:
                known = [*trace.tape.values, *trace.tape.aliases]
                raise UsageError(
                    f"{name!r} is to be {called!r}, which is not here.{did_you_mean(called, known, 3)}"
                )
            unmatched.append(name)
            continue
        if called in found:
            raise UsageError(f"{came_from[called]!r} and {name!r} would both be {called!r}.")
        found[called] = Recorded(_arranged(name, entry.value, called, rule.axes, trace), entry.type)
        came_from[called] = name
    if not found:
        raise UsageError(
            f"none of their names is ours: {_some(unmatched)}; ours are {_some(list(trace.tape.steps))}. "
            'Give --names map.toml with lines such as "h.{l}.attn.q" = "blocks.{l}.attn.q".'
        )
    return found, unmatched


def _some(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _other_length(theirs: Shape, ours: Shape, letters: Sequence[str]) -> int | None:
    """How many tokens they read, where nothing but that makes their shape another."""
    for tokens in {*theirs, 1}:
        other = [tokens if letter in "ts" else n for letter, n in zip(letters, ours, strict=True)]
        if "t" in letters and [n for n in theirs if n > 1] == [n for n in other if n > 1]:
            return tokens
    return None


def _arranged(name: str, value: Array, called: str, axes: str | None, trace: Trace) -> Array:
    """Their array with our axes in our order; an axis of length 1 may be left out."""
    shape, letters = trace.value(called).shape, trace.about(called).axes
    here = f"{called} [{' '.join(letters)}] has {shape} here"
    if axes is None:
        if tuple(n for n in value.shape if n > 1) != tuple(n for n in shape if n > 1):
            if (tokens := _other_length(value.shape, shape, letters)) is not None:
                raise UsageError(
                    f"{name!r} has the shape {value.shape}, and {here}: {tokens} tokens there, "
                    f"{shape[letters.index('t')]} here: another prompt, or a bos?"
                )
            raise UsageError(f"{name!r} has the shape {value.shape}, and {here}; say its axes in --names.")
        return value.reshape(shape)
    groups = [re.findall(r"\w+", group) for group in re.findall(r"\([\w\s]+\)|\w+", axes)]
    flat = [letter for group in groups for letter in group]
    sizes = dict(zip(letters, shape, strict=True))
    if len(set(flat)) < len(flat) or not set(flat) <= set(letters):
        raise UsageError(f"axes {axes!r} of {name!r} must be letters of {called}: {' '.join(letters)}.")
    if lost := [letter for letter in letters if letter not in flat and sizes[letter] > 1]:
        raise UsageError(f"axes {axes!r} of {name!r} leave out {' '.join(lost)}, and {here}.")
    if value.shape != tuple(math.prod(sizes[letter] for letter in group) for group in groups):
        raise UsageError(f"{name!r} has the shape {value.shape}, which is not {axes!r}: {here}.")
    order = [flat.index(letter) for letter in letters if letter in flat]
    return value.reshape([sizes[letter] for letter in flat]).transpose(order).reshape(shape)

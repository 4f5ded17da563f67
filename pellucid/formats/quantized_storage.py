"""Quantized weights in our model folder: three tensors for each, and a table of their schemes.

    NAME.integers   U8 [out, ⌈in / 2⌉]   4 bits: byte j of a row holds integer 2j in its low nibble, and
                                         2j + 1 in its high one; without minimums q + 8 is stored
                    I8 [out, in]         5 and 8 bits: one byte for each
    NAME.scales     F16 [out, ⌈in / group⌉]
    NAME.minimums   F16 [out, ⌈in / group⌉], where the scheme has them

The table, `quantization` in config.json, maps names of parameters, or patterns of those that all layers have,
to their scheme: {"blocks.*.attn.q_proj.weight": {"bits": 4, "group": 32, "minimums": true}}.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.base.dtypes import Array
from pellucid.base.errors import not_one_of, show
from pellucid.base.files import need, validating
from pellucid.base.patterns import matches
from pellucid.base.quantized import QuantizedWeight, is_quantizable
from pellucid.formats.pretrained import LazyTensor, LazyWeights, Shape
from pellucid.formats.safetensors_file import StoredTensor

BITS = (4, 5, 8)
_LAYER = re.compile(r"blocks\.\d+\.")


@dataclass(frozen=True)
class StoredScheme:
    """How one matrix is stored: bits of an integer, inputs that share a scale, and whether it has
    minimums."""

    bits: int
    group: int
    minimums: bool

    @classmethod
    def from_weight(cls, weight: QuantizedWeight) -> "StoredScheme":
        return cls(weight.bits, min(weight.group, weight.shape[1]), weight.minimums is not None)

    @property
    def type(self) -> str:
        return f"INT{self.bits}"

    def to_dict(self) -> dict[str, Any]:
        return {"bits": self.bits, "group": self.group, "minimums": self.minimums}

    def parts(self, name: str, shape: Shape) -> dict[str, tuple[str, Shape]]:
        """Returns the type and shape of each stored tensor of a weight."""
        out, width = shape
        per_group = ("F16", (out, -(-width // self.group)))
        parts: dict[str, tuple[str, Shape]] = {
            f"{name}.integers": ("U8", (out, -(-width // 2))) if self.bits == 4 else ("I8", (out, width)),
            f"{name}.scales": per_group,
        }
        return parts | {f"{name}.minimums": per_group} if self.minimums else parts


# ---- writing


def store(name: str, weights: LazyWeights) -> tuple[StoredScheme, dict[str, StoredTensor]]:
    """Returns the scheme of a weight and its stored tensors. The integers are looked up again when they are
    written, so that those of one weight are in memory at a time."""
    weight = weights[name]
    assert isinstance(weight, QuantizedWeight)
    scheme, kept = StoredScheme.from_weight(weight), weight.parts()
    tensors = {}
    for part, (type, shape) in scheme.parts(name, weight.shape).items():
        short = part.rpartition(".")[2]
        bits = partial(_pack, name, weights) if short == "integers" else partial(kept.__getitem__, short)
        tensors[part] = StoredTensor(type, shape, bits)
    return scheme, tensors


def _pack(name: str, weights: LazyWeights) -> Array:
    """Returns the integers of a weight as they are stored."""
    weight = weights[name]
    assert isinstance(weight, QuantizedWeight)
    if weight.bits != 4:
        return weight.integers
    nibbles = (weight.integers + np.int8(8 if weight.minimums is None else 0)).view(np.uint8)
    padded = np.pad(nibbles, ((0, 0), (0, nibbles.shape[1] % 2)))
    packed: Array = padded[:, ::2] | (padded[:, 1::2] << 4)
    return packed


def make_table(schemes: Mapping[str, StoredScheme], names: Iterable[str]) -> dict[str, Any]:
    """Returns the table of schemes by name; a pattern stands for all layers where they have the same one.
    `names` are all parameters, of which some may not be quantized."""
    by_pattern: dict[str, set[StoredScheme | None]] = {}
    for name in names:
        by_pattern.setdefault(_to_pattern(name), set()).add(schemes.get(name))
    named = {
        _to_pattern(name) if len(by_pattern[_to_pattern(name)]) == 1 else name: scheme
        for name, scheme in schemes.items()
    }
    return {name: scheme.to_dict() for name, scheme in named.items()}


def _to_pattern(name: str) -> str:
    return _LAYER.sub("blocks.*.", name)


# ---- reading


def read_schemes(table: Any, shapes: Mapping[str, Shape]) -> dict[str, StoredScheme]:
    """Returns the scheme of each quantized parameter; raises `Damaged` unless the table gives each matrix at
    most one, and is not empty."""
    is_table = isinstance(table, dict) and 0 < len(table) <= len(shapes)
    need(is_table, f"quantization is {show(table)}, not a table of schemes")
    found: dict[str, StoredScheme] = {}
    for pattern, entry in table.items():
        scheme = _read_scheme(pattern, entry)
        names = [name for name in shapes if name == pattern or matches(name, [pattern])]
        need(bool(names), f"quantization names {show(pattern)}, and this config has no such weight")
        for name in names:
            need(name not in found, f"quantization names {name} twice")
            need(is_quantizable(name, shapes[name]), f"quantization names {name}, which is never quantized")
            width = shapes[name][1]
            need(scheme.group <= width, f"{name} has groups of {scheme.group} in rows of {width} numbers")
            found[name] = scheme
    return found


def _read_scheme(pattern: str, entry: Any) -> StoredScheme:
    place, keys = f"the scheme of {show(pattern)}", ("bits", "group", "minimums")
    need(isinstance(entry, dict), f"{place} is {show(entry)}, not a table")
    for key in entry:
        need(key in keys, not_one_of(f"a key of {place}", key, keys))
    bits, group, minimums = (entry.get(key) for key in keys)
    need(type(bits) is int and bits in BITS, f"{place} has bits {show(bits)}, and not one of {BITS}")
    need(type(group) is int and group >= 1, f"{place} has group {show(group)}, and not a positive number")
    need(type(minimums) is bool, f"{place} has minimums {show(minimums)}, and not true or false")
    need(bits != 8 or not minimums, f"{place} has 8 bits with minimums")
    return StoredScheme(bits, group, minimums)


def make_tensor(
    path: Path, name: str, shape: Shape, scheme: StoredScheme, stored: Mapping[str, StoredTensor]
) -> LazyTensor:
    """Returns a weight whose parts have their types and shapes; its integers are checked when it is read."""
    read = partial(_read, path, name, shape, scheme, dict(stored))
    return LazyTensor(shape, read, scheme.type.lower())


def _read(
    path: Path, name: str, shape: Shape, scheme: StoredScheme, stored: Mapping[str, StoredTensor]
) -> QuantizedWeight:
    integers, scales = (stored[f"{name}.{part}"].bits() for part in ("integers", "scales"))
    minimums = np.array(stored[f"{name}.minimums"].bits()) if scheme.minimums else None
    with validating(path):
        if scheme.bits == 4:
            integers = _unpack(name, integers, shape[1], minimums is None)
        else:
            integers = np.array(integers)
            low = 0 if scheme.minimums else -(2 ** (scheme.bits - 1))
            inside = integers.size == 0 or low <= integers.min() <= integers.max() < low + 2**scheme.bits
            need(inside, f"{name} has an integer that is not one of {scheme.bits} bits")
    return QuantizedWeight(integers, np.array(scales), minimums, scheme.group, scheme.bits)


def _unpack(name: str, packed: Array, width: int, is_signed: bool) -> Array:
    """Returns int8 [out width] from two integers a byte; the last high nibble of an odd row is 0."""
    both = np.stack((packed & np.uint8(15), packed >> 4), -1).reshape(len(packed), -1)
    need(not both[:, width:].any(), f"{name} has bits after the last integer of a row")
    integers: Array = np.ascontiguousarray(both[:, :width]).view(np.int8) - np.int8(8 if is_signed else 0)
    return integers

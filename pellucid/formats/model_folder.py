"""Our model folder: `config.json` with our config, `model.safetensors` with our names, and a tokenizer."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from pellucid.base.dtypes import FLOAT_STORAGE, STORAGE, Array, dtype_code, encode
from pellucid.base.errors import ConfigError, FileError, not_one_of, show
from pellucid.base.files import need, read_format, validating
from pellucid.base.patterns import matches
from pellucid.base.quantized import QuantizedWeight, is_quantizable
from pellucid.config import ModelConfig, Shapes
from pellucid.formats.companions import read_companions, write_companions
from pellucid.formats.folder import file_in, new_model_folder, write_bytes, write_table
from pellucid.formats.pretrained import (
    LazyTensor,
    LazyWeights,
    Pretrained,
    Provenance,
    Shape,
    as_lazy,
    shape_mismatch,
    stored_dtype,
)
from pellucid.formats.safetensors_file import (
    SHARD_BYTES,
    StoredTensor,
    describe_wrong_type,
    read_tensors,
    write_tensors,
)

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


MODEL_TYPE, FORMAT, VERSION = "pellucid", "pellucid-model", 1
QUANTIZED_VERSION = 2
"""The version of a folder that holds quantized weights, which a reader of the first version refuses."""
KEYS = ("model_type", "format", "version", "name", "config")


def read(folder: str | Path) -> Pretrained:
    """Returns the model of a folder of ours. Its weights are read when they are used; those that it stores
    quantized are a `QuantizedWeight` each."""
    path = Path(folder)
    table = read_format(file_in(path, "config.json"), "model", FORMAT, VERSION, QUANTIZED_VERSION)
    keys = KEYS if table["version"] == VERSION else (*KEYS, "quantization")
    with validating(path / "config.json"):
        need(table.get("model_type") == MODEL_TYPE, f"model_type is {show(table.get('model_type'))}")
        for key in table:
            need(key in keys, not_one_of("a key", key, keys))
        need(isinstance(table.get("name"), str), f"name is {show(table.get('name'))}, not a string")
        need(isinstance(table.get("config"), dict), "it has no config")
    config = _config(path / "config.json", table["config"])
    schemes, shapes = {}, config.parameters()
    if table["version"] == QUANTIZED_VERSION:
        with validating(path / "config.json"):
            schemes = read_schemes(table.get("quantization"), shapes)
    stored = read_tensors(path, STORAGE if schemes else FLOAT_STORAGE)
    with validating(path):
        _check_stored(shapes, schemes, stored)
    beside = read_companions(path, {})
    size = sum(int(np.prod(tensor.shape)) * STORAGE[tensor.type].itemsize for tensor in stored.values())
    types = {name: schemes[name].type if name in schemes else stored[name].type for name in shapes}
    return Pretrained(
        name=table["name"],
        config=config,
        weights=LazyWeights(
            {
                name: make_tensor(path, name, shape, schemes[name], stored)
                if name in schemes
                else LazyTensor(shape, stored[name].read)
                for name, shape in shapes.items()
            }
        ),
        provenance=Provenance(path, MODEL_TYPE, MODEL_TYPE, types, size),
        **vars(beside),
    )


def _check_stored(
    shapes: Shapes, schemes: Mapping[str, StoredScheme], stored: Mapping[str, StoredTensor]
) -> None:
    """Raises `Damaged` unless the tensors are exactly the config's weights, the quantized ones in parts."""
    parts: dict[str, tuple[str, Shape]] = {}
    for name, scheme in schemes.items():
        parts |= scheme.parts(name, shapes[name])
    wanted = {name: shape for name, shape in shapes.items() if name not in schemes}
    wanted |= {part: shape for part, (_, shape) in parts.items()}
    why = shape_mismatch(wanted, {name: tensor.shape for name, tensor in stored.items()})
    need(not why, why)
    for name, tensor in stored.items():
        if name in parts:
            type = parts[name][0]
            need(tensor.type == type, f"{name} is stored as {show(tensor.type)}, and must be {type}")
        else:
            need(tensor.type in FLOAT_STORAGE, describe_wrong_type(name, tensor.type))


def _config(path: Path, given: dict[str, Any]) -> ModelConfig:
    try:
        return ModelConfig.from_dict(given)
    except ConfigError as error:
        raise FileError(f"{path}: {error}") from None


def write(
    folder: str | Path,
    pretrained: Pretrained,
    dtype: str | None = None,
    shard_bytes: int = SHARD_BYTES,
    force: bool = False,
    beside: Mapping[str, bytes] = MappingProxyType({}),
) -> None:
    """Writes a model as a new folder of ours, with the files `beside` it; `force` replaces a model that is
    there. Without a `dtype` every weight keeps the type of its file. Quantized weights keep their integers,
    whatever the `dtype`."""
    wanted, weights = dtype_code(dtype), as_lazy(pretrained.weights)
    tensors, schemes = dict[str, StoredTensor](), dict[str, StoredScheme]()
    for name, shape in pretrained.config.parameters().items():
        if name in weights.types and is_quantizable(name, shape):
            schemes[name], parts = store(name, weights)
            tensors |= parts
            continue
        type = wanted or stored_dtype(pretrained, name)
        tensors[name] = StoredTensor(
            type, shape, partial(_encode_weight, pretrained, name, type, wanted is None)
        )
    table = {
        "model_type": MODEL_TYPE,
        "format": FORMAT,
        "version": VERSION,
        "name": pretrained.stored_name,
        "config": pretrained.config.to_dict(),
    }
    if schemes:
        table |= {
            "version": QUANTIZED_VERSION,
            "quantization": make_table(schemes, pretrained.config.parameters()),
        }
    with new_model_folder(Path(folder), force, read) as new:
        write_tensors(new, tensors, shard_bytes)
        write_companions(new, pretrained)
        for file, data in beside.items():
            write_bytes(new / file, data)
        write_table(new / "config.json", table)


def _encode_weight(pretrained: Pretrained, name: str, type: str, exact: bool) -> Array:
    return encode(np.asarray(pretrained.weights[name]), type, exact)

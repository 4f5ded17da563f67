"""Writes a GGUF file that llama.cpp runs: metadata and tensor infos first, then each tensor."""

import dataclasses
import math
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.base.errors import ConfigError, FileError, unknown
from pellucid.base.files import Damaged
from pellucid.base.quantized import QuantizedWeight
from pellucid.config import ModelConfig
from pellucid.formats.folder import new_model_file
from pellucid.formats.gguf import architectures
from pellucid.formats.gguf.architectures import Architecture
from pellucid.formats.gguf.container import (
    ALIGNMENT,
    ARRAY,
    BOOL,
    FLOAT32,
    MAGIC,
    MAX_NAME_BYTES,
    TEXT,
    VERSIONS,
    Metadata,
    UnsupportedError,
    Value,
    align,
    require_support,
)
from pellucid.formats.gguf.quants import BY_NAME, Array, Type, find_type, quantize, write_blocks
from pellucid.formats.gguf.reading import read
from pellucid.formats.gguf.tokenizer import companions_metadata
from pellucid.formats.pretrained import LazyWeights, Pretrained, Shape, as_lazy, check_token_ids
from pellucid.formats.rope_layout import in_layout
from pellucid.parts.dropouts import NoDropout
from pellucid.parts.masks.causal import Causal
from pellucid.parts.masks.window import Window

KINDS = {"F32": 0, "F16": 1, "Q8_0": 7}
"""The type of the matrices, and its number in general.file_type."""
FILE_TYPES = KINDS | {"Q4_0": 2, "Q4_1": 3, "Q5_0": 8, "Q5_1": 9}
"""The numbers of all types that a file is written with."""

UINT32, INT32 = 4, 5


@dataclass(frozen=True)
class OutputTensor:
    """One tensor of the file, and the weights that it holds, concatenated by rows; `is_exact` where they are
    quantized weights whose integers it stores."""

    name: str
    weights: tuple[str, ...]
    shape: Shape
    type: Type
    is_exact: bool = False

    @property
    def bytes(self) -> int:
        return self.type.bytes(math.prod(self.shape))


def write(path: str | Path, pretrained: Pretrained, kind: str | None = None, force: bool = False) -> None:
    """Writes a model with its matrices as F32, F16 or Q8_0; vectors stay F32, as in llama.cpp's
    own files. `force` replaces an existing GGUF file.

    Without a `kind`, floats are F16, and a quantized matrix keeps its integers where a type has blocks for
    them: nothing is rounded again."""
    if kind is not None and kind not in KINDS:
        raise FileError(unknown("the type of a GGUF file", kind, KINDS))
    check_token_ids(pretrained)
    name, architecture = _architecture_for(pretrained)
    config, weights = in_layout(_inference_config(pretrained.config), pretrained.weights, architecture.layout)
    matrices = list(_plan_tensors(architecture, config, as_lazy(weights), kind))
    metadata: dict[str, Value] = {
        "general.architecture": name,
        "general.type": "model",
        "general.name": pretrained.stored_name,
        "general.file_type": FILE_TYPES[kind or _most_used(matrices)],
        "general.quantization_version": 2,
        **{f"{name}.{key}": value for key, value in architecture.metadata(config).items()},
        **companions_metadata(pretrained),
    }
    tables = architecture.numbers(config)
    tensors = [OutputTensor(name, (name,), table.shape, BY_NAME["F32"]) for name, table in tables.items()]
    tensors += matrices
    with new_model_file(Path(path), force, read) as file:
        header = _encode_header(metadata, tensors)
        file.write(header + bytes(align(len(header), ALIGNMENT) - len(header)))
        for tensor in tensors:
            for piece in _encode_tensor(tensor, weights, tables):
                file.write(piece)
            file.write(bytes(align(tensor.bytes, ALIGNMENT) - tensor.bytes))


def _architecture_for(pretrained: Pretrained) -> tuple[str, Architecture]:
    """Returns the architecture that expresses a config exactly: its metadata are written, read again and
    compared, so a choice that an architecture has no key for is found, not lost. Of several, it is the one
    that the model came from."""
    refusals, known = [], architectures.architectures()
    for name in sorted(known, key=lambda name: name != pretrained.provenance.architecture):
        architecture = architectures.find(name)
        if not (why := _find_refusal(_inference_config(pretrained.config), name, architecture)):
            return name, architecture
        refusals.append(f"{name} {why}")
    raise FileError(f"no GGUF architecture can hold this model: {'; '.join(refusals)}.")


def _find_refusal(config: ModelConfig, name: str, architecture: Architecture) -> str | None:
    config, _ = in_layout(config, {}, architecture.layout)
    places = architecture.places(config.n_layer)
    tensors = {places[weight].tensor for weight in config.parameters() if weight in places}
    try:
        metadata = {
            f"{name}.{key}": _round_to_file(key, value)
            for key, value in architecture.metadata(config).items()
        }
        back = architecture.config(Metadata(metadata, name, {}, architecture.numbers(config)), tensors)
    except (ConfigError, UnsupportedError, Damaged) as error:
        return f"cannot: {str(error).rstrip('.')}"
    for field in dataclasses.fields(config):
        has, wanted = getattr(back, field.name), getattr(config, field.name)
        if field.name == "biases":
            has, wanted = sorted(has), sorted(set(wanted))
        if not _is_close(_as_data(has), _as_data(wanted)):
            return f"has {field.name} = {_as_data(has)}, not {_as_data(wanted)}"
    if strange := [weight for weight in config.parameters() if weight not in places]:
        return f"has no weight {strange[0]}"
    return None


def _inference_config(config: ModelConfig) -> ModelConfig:
    """Returns the config without dropout and without a window as long as the context: they change no output
    at inference, and GGUF has neither."""
    wide = isinstance(config.mask, Window) and config.mask.size >= config.context_length
    return dataclasses.replace(config, dropout=NoDropout(), mask=Causal() if wide else config.mask)


def _round_to_file(key: str, value: Value) -> Value:
    """Returns a value as the file stores it: an integer in 32 bits, a float in float32."""
    if isinstance(value, float):
        with np.errstate(over="ignore"):
            return float(str(np.float32(value)))
    fits = not isinstance(value, int) or value < 2**32
    require_support(fits, f"{key} = {value} does not fit in 32 bits")
    return value


def _as_data(value: Any) -> Any:
    return value.to_dict() if hasattr(value, "to_dict") else value


def _is_close(has: Any, wanted: Any) -> bool:
    """Returns whether two values are equal up to rounding to float32, once or twice."""
    if isinstance(has, dict) and isinstance(wanted, dict):
        return has.keys() == wanted.keys() and all(_is_close(has[key], wanted[key]) for key in has)
    if isinstance(has, float) and isinstance(wanted, float):
        return math.isclose(has, wanted, rel_tol=2**-22)
    return bool(has == wanted)


def _plan_tensors(
    architecture: Architecture, config: ModelConfig, weights: LazyWeights, kind: str | None
) -> Iterator[OutputTensor]:
    """Yields the tensors in the order of the computation; several weights may share one."""
    places, shapes = architecture.places(config.n_layer), config.parameters()
    shared: dict[str, list[str]] = {}
    for weight in sorted(shapes, key=lambda weight: places[weight].part):
        shared.setdefault(places[weight].tensor, []).append(weight)
    for name in dict.fromkeys(places[weight].tensor for weight in shapes):
        held = tuple(shared[name])
        shape = (sum(shapes[weight][0] for weight in held), *shapes[held[0]][1:])
        small = len(shape) == 1 or name in architecture.always_f32
        if kind is None and not small and (exact := _find_exact_type(held, weights)):
            yield OutputTensor(name, held, shape, exact, is_exact=True)
            continue
        # A row that does not fill its blocks is F16, as in llama.cpp's own converter.
        fits = kind is not None and shape[-1] % BY_NAME[kind].size == 0
        yield OutputTensor(name, held, shape, BY_NAME["F32" if small else kind if kind and fits else "F16"])


def _find_exact_type(names: Sequence[str], weights: LazyWeights) -> Type | None:
    """Returns the one type whose blocks hold all of these weights exactly, where there is one."""
    found = set[Type | None]()
    for name in names:
        weight = weights[name] if weights.tensors[name].type else None
        found.add(find_type(weight) if isinstance(weight, QuantizedWeight) else None)
    return found.pop() if len(found) == 1 else None


def _most_used(tensors: Sequence[OutputTensor]) -> str:
    """Returns the type of most numbers of the matrices."""
    counts = Counter[str]()
    for tensor in tensors:
        counts[tensor.type.name] += math.prod(tensor.shape)
    return counts.most_common(1)[0][0]


def _encode_tensor(
    tensor: OutputTensor, weights: Mapping[str, Array], tables: Mapping[str, Array]
) -> Iterator[bytes]:
    """Yields the bytes of a tensor; those of several weights follow each other, as their rows do."""
    if not tensor.is_exact:
        yield from quantize(tensor.type, _read_values(tensor, weights, tables), tensor.name)
        return
    for name in tensor.weights:
        weight = weights[name]
        assert isinstance(weight, QuantizedWeight)
        yield from write_blocks(tensor.type, weight, name)


def _read_values(tensor: OutputTensor, weights: Mapping[str, Array], tables: Mapping[str, Array]) -> Array:
    parts = [np.asarray(tables[name] if name in tables else weights[name]) for name in tensor.weights]
    return np.ascontiguousarray(parts[0] if len(parts) == 1 else np.concatenate(parts), dtype=np.float32)


def _encode_header(metadata: Mapping[str, Value], tensors: list[OutputTensor]) -> bytes:
    pieces = [MAGIC, struct.pack("<IQQ", VERSIONS[-1], len(tensors), len(metadata))]
    for key, value in metadata.items():
        pieces += [_encode_text(key), _encode_value(value)]
    place = 0
    for tensor in tensors:
        assert len(tensor.name) < MAX_NAME_BYTES
        pieces += [_encode_text(tensor.name), struct.pack("<I", len(tensor.shape))]
        pieces += [struct.pack(f"<{len(tensor.shape)}QIQ", *tensor.shape[::-1], tensor.type.code, place)]
        place += align(tensor.bytes, ALIGNMENT)
    return b"".join(pieces)


def _encode_text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _encode_value(value: Value) -> bytes:
    """Returns a value with its type: integers as uint32 and floats as float32, as llama.cpp expects them."""
    if isinstance(value, bool):
        return struct.pack("<I?", BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", UINT32, value)
    if isinstance(value, float):
        return struct.pack("<If", FLOAT32, value)
    if isinstance(value, str):
        return struct.pack("<I", TEXT) + _encode_text(value)
    if isinstance(value, list):
        return struct.pack("<IIQ", ARRAY, TEXT, len(value)) + b"".join(map(_encode_text, value))
    return struct.pack("<IIQ", ARRAY, INT32, len(value)) + value.astype("<i4").tobytes()

"""Writing a GGUF file that llama.cpp runs: the two tables first, then one tensor after the other."""

import dataclasses
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.config import ModelConfig
from pellucid.errors import ConfigError, FileError, did_you_mean
from pellucid.files import Damaged
from pellucid.interop.gguf import architectures
from pellucid.interop.gguf.architectures import Architecture
from pellucid.interop.gguf.container import (
    ALIGNMENT,
    ARRAY,
    BOOL,
    FLOAT32,
    LONGEST_NAME,
    MAGIC,
    TEXT,
    VERSIONS,
    Value,
    padded,
)
from pellucid.interop.gguf.facts import Facts
from pellucid.interop.gguf.opening import NotSupported, support
from pellucid.interop.gguf.quants import BY_NAME, Array, Type, quantise
from pellucid.interop.gguf.reading import read
from pellucid.interop.gguf.tokenizer import Words, words_as_facts
from pellucid.interop.output import new_model_file
from pellucid.interop.rope_layout import in_layout
from pellucid.parts.dropouts import NoDropout
from pellucid.parts.masks.causal import Causal
from pellucid.parts.masks.window import Window
from pellucid.pretrained import Pretrained, Shape, check_token_ids

KINDS = {"F32": 0, "F16": 1, "Q8_0": 7}
"""How the matrices are stored, and the number under which llama.cpp knows such a file."""

UINT32, INT32 = 4, 5


@dataclass(frozen=True)
class Written:
    """One tensor of the file: the weights of ours that it holds, one below the other."""

    name: str
    weights: tuple[str, ...]
    shape: Shape
    type: Type

    @property
    def bytes(self) -> int:
        return self.type.bytes(math.prod(self.shape))


def write(path: str | Path, pretrained: Pretrained, kind: str = "F16", force: bool = False) -> None:
    """Writes a model with its matrices as F32, F16 or Q8_0; vectors stay F32, as llama.cpp keeps them.
    `force` replaces a GGUF file that is there."""
    if kind not in KINDS:
        raise FileError(f"GGUF is written as {', '.join(KINDS)}, not {kind!r}.{did_you_mean(kind, KINDS)}")
    check_token_ids(pretrained)
    name, architecture = _architecture_for(pretrained)
    config, weights = in_layout(_inference_config(pretrained.config), pretrained.weights, architecture.layout)
    words = Words(pretrained.tokenizer, pretrained.chat_template, pretrained.add_bos, pretrained.generation)
    facts: dict[str, Value] = {
        "general.architecture": name,
        "general.type": "model",
        "general.name": pretrained.name,
        "general.file_type": KINDS[kind],
        "general.quantization_version": 2,
        **{f"{name}.{key}": value for key, value in architecture.facts(config).items()},
        **words_as_facts(words, config.vocab_size),
    }
    tables = architecture.numbers(config)
    tensors = [Written(name, (name,), table.shape, BY_NAME["F32"]) for name, table in tables.items()]
    tensors += _tensors(architecture, config, kind)
    with new_model_file(Path(path), force, read) as file:
        header = _header(facts, tensors)
        file.write(header + bytes(padded(len(header), ALIGNMENT) - len(header)))
        for tensor in tensors:
            for piece in quantise(tensor.type, _numbers(tensor, weights, tables), tensor.name):
                file.write(piece)
            file.write(bytes(padded(tensor.bytes, ALIGNMENT) - tensor.bytes))


def _architecture_for(pretrained: Pretrained) -> tuple[str, Architecture]:
    """The architecture that says a config and nothing else: the facts are written, read again, and what
    comes back is compared. A choice that an architecture has no fact for is therefore found, not lost.
    Where several can, it is the one that the model came from, if that is among them."""
    refusals, known = [], architectures.architectures()
    for name in sorted(known, key=lambda name: name != pretrained.provenance.architecture):
        architecture = architectures.find(name)
        if not (why := _refusal(_inference_config(pretrained.config), name, architecture)):
            return name, architecture
        refusals.append(f"{name} {why}")
    raise FileError(f"no GGUF architecture can hold this model: {'; '.join(refusals)}.")


def _refusal(config: ModelConfig, name: str, architecture: Architecture) -> str | None:
    config, _ = in_layout(config, {}, architecture.layout)
    places = architecture.places(config.n_layer)
    tensors = {places[weight].tensor for weight in config.parameters() if weight in places}
    try:
        facts = {f"{name}.{key}": _kept(key, value) for key, value in architecture.facts(config).items()}
        back = architecture.config(Facts(facts, name, {}, architecture.numbers(config)), tensors)
    except (ConfigError, NotSupported, Damaged) as error:
        return f"cannot: {str(error).rstrip('.')}"
    for field in dataclasses.fields(config):
        has, wanted = getattr(back, field.name), getattr(config, field.name)
        if field.name == "biases":
            has, wanted = sorted(has), sorted(set(wanted))
        if not _same(_plain(has), _plain(wanted)):
            return f"has {field.name} = {_plain(has)}, not {_plain(wanted)}"
    if strange := [weight for weight in config.parameters() if weight not in places]:
        return f"has no weight {strange[0]}"
    return None


def _inference_config(config: ModelConfig) -> ModelConfig:
    """Returns the config without what changes no output: dropout, which is for training alone, and a window
    that holds the whole context. GGUF has neither."""
    wide = isinstance(config.mask, Window) and config.mask.size >= config.context_length
    return dataclasses.replace(config, dropout=NoDropout(), mask=Causal() if wide else config.mask)


def _kept(key: str, value: Value) -> Value:
    """A fact as the file keeps it: a whole number in 32 bits, another in float32."""
    if isinstance(value, float):
        with np.errstate(over="ignore"):
            return float(str(np.float32(value)))
    fits = not isinstance(value, int) or value < 2**32
    support(fits, f"{key} = {value} is no number of 32 bits")
    return value


def _plain(value: Any) -> Any:
    return value.to_dict() if hasattr(value, "to_dict") else value


def _same(has: Any, wanted: Any) -> bool:
    """Whether two values differ by no more than float32's rounding, once or twice."""
    if isinstance(has, dict) and isinstance(wanted, dict):
        return has.keys() == wanted.keys() and all(_same(has[key], wanted[key]) for key in has)
    if isinstance(has, float) and isinstance(wanted, float):
        return math.isclose(has, wanted, rel_tol=2**-22)
    return bool(has == wanted)


def _tensors(architecture: Architecture, config: ModelConfig, kind: str) -> Iterator[Written]:
    """The tensors in the order of the computation; weights that share one are joined."""
    places, shapes = architecture.places(config.n_layer), config.parameters()
    joined: dict[str, list[str]] = {}
    for weight in sorted(shapes, key=lambda weight: places[weight].part):
        joined.setdefault(places[weight].tensor, []).append(weight)
    for name in dict.fromkeys(places[weight].tensor for weight in shapes):
        weights = joined[name]
        shape = (sum(shapes[weight][0] for weight in weights), *shapes[weights[0]][1:])
        small = len(shape) == 1 or name in architecture.always_f32
        # A row that does not fill its blocks is kept in 16 bits, as llama.cpp's own converter does.
        fits = shape[-1] % BY_NAME[kind].size == 0
        yield Written(name, tuple(weights), shape, BY_NAME["F32" if small else kind if fits else "F16"])


def _numbers(tensor: Written, weights: Mapping[str, Array], tables: Mapping[str, Array]) -> Array:
    parts = [tables[name] if name in tables else weights[name] for name in tensor.weights]
    return np.ascontiguousarray(parts[0] if len(parts) == 1 else np.concatenate(parts), dtype=np.float32)


def _header(facts: Mapping[str, Value], tensors: list[Written]) -> bytes:
    pieces = [MAGIC, struct.pack("<IQQ", VERSIONS[-1], len(tensors), len(facts))]
    for key, value in facts.items():
        pieces += [_text(key), _value(value)]
    place = 0
    for tensor in tensors:
        assert len(tensor.name) < LONGEST_NAME
        pieces += [_text(tensor.name), struct.pack("<I", len(tensor.shape))]
        pieces += [struct.pack(f"<{len(tensor.shape)}QIQ", *tensor.shape[::-1], tensor.type.code, place)]
        place += padded(tensor.bytes, ALIGNMENT)
    return b"".join(pieces)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Value) -> bytes:
    """A fact with its type: sizes as uint32 and numbers as float32, as llama.cpp looks for them."""
    if isinstance(value, bool):
        return struct.pack("<I?", BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", UINT32, value)
    if isinstance(value, float):
        return struct.pack("<If", FLOAT32, value)
    if isinstance(value, str):
        return struct.pack("<I", TEXT) + _text(value)
    if isinstance(value, list):
        return struct.pack("<IIQ", ARRAY, TEXT, len(value)) + b"".join(map(_text, value))
    return struct.pack("<IIQ", ARRAY, INT32, len(value)) + value.astype("<i4").tobytes()

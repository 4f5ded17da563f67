"""Our model folder: `config.json` with our config, `model.safetensors` with our names, and a tokenizer."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from pellucid.base.dtypes import FLOAT_STORAGE, STORAGE, Array, dtype_code, encode
from pellucid.base.errors import ConfigError, FileError, not_one_of, show
from pellucid.base.files import need, read_format, validating
from pellucid.base.quantized import is_quantizable
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
from pellucid.formats.quantized_storage import StoredScheme, make_table, make_tensor, read_schemes, store
from pellucid.formats.safetensors_file import (
    SHARD_BYTES,
    StoredTensor,
    describe_wrong_type,
    read_tensors,
    write_tensors,
)

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
        tokenizer=beside.tokenizer,
        provenance=Provenance(path, MODEL_TYPE, MODEL_TYPE, types, size),
        chat_template=beside.chat_template,
        add_bos=beside.add_bos,
        generation=beside.generation,
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

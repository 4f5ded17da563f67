"""Our model folder: `config.json` with our config, `model.safetensors` with our names, and a tokenizer."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.config import ModelConfig
from pellucid.dtypes import FLOAT_STORAGE, Array, dtype_code, encode
from pellucid.errors import ConfigError, FileError, show, unknown
from pellucid.files import need, read_format, validating
from pellucid.interop.companions import read_companions, write_companions
from pellucid.interop.folder import file_in, new_model_folder, write_table
from pellucid.interop.safetensors_file import (
    SHARD_BYTES,
    StoredTensor,
    describe_wrong_type,
    read_tensors,
    write_tensors,
)
from pellucid.pretrained import LazyTensor, LazyWeights, Pretrained, Provenance, check_shapes, stored_dtype

MODEL_TYPE, FORMAT, VERSION = "pellucid", "pellucid-model", 1
KEYS = ("model_type", "format", "version", "name", "config")


def read(folder: str | Path) -> Pretrained:
    """Returns the model of a folder of ours. Its weights are read when they are used."""
    path = Path(folder)
    table = read_format(file_in(path, "config.json"), "model", FORMAT, VERSION)
    with validating(path / "config.json"):
        need(table.get("model_type") == MODEL_TYPE, f"model_type is {show(table.get('model_type'))}")
        for key in table:
            need(key in KEYS, unknown("a key", key, KEYS))
        need(isinstance(table.get("name"), str), f"name is {show(table.get('name'))}, not a string")
        need(isinstance(table.get("config"), dict), "it has no config")
    config = _config(path / "config.json", table["config"])
    stored = read_tensors(path)
    with validating(path):
        check_shapes(config, {name: tensor.shape for name, tensor in stored.items()})
        for name, tensor in stored.items():
            need(tensor.type in FLOAT_STORAGE, describe_wrong_type(name, tensor.type))
    beside = read_companions(path, {})
    size = sum(int(np.prod(tensor.shape)) * FLOAT_STORAGE[tensor.type].itemsize for tensor in stored.values())
    types = {name: tensor.type for name, tensor in stored.items()}
    return Pretrained(
        name=table["name"],
        config=config,
        weights=LazyWeights(
            {name: LazyTensor(stored[name].shape, stored[name].read) for name in config.parameters()}
        ),
        tokenizer=beside.tokenizer,
        provenance=Provenance(path, MODEL_TYPE, MODEL_TYPE, types, size),
        chat_template=beside.chat_template,
        add_bos=beside.add_bos,
        generation=beside.generation,
    )


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
) -> None:
    """Writes a model as a new folder of ours; `force` replaces a model that is there. Without a `dtype` every
    weight keeps the type of its file."""
    wanted = dtype_code(dtype)
    tensors = {}
    for name, shape in pretrained.config.parameters().items():
        type = wanted or stored_dtype(pretrained, name)
        tensors[name] = StoredTensor(
            type, shape, partial(_encode_weight, pretrained, name, type, wanted is None)
        )
    table = {
        "model_type": MODEL_TYPE,
        "format": FORMAT,
        "version": VERSION,
        "name": pretrained.name,
        "config": pretrained.config.to_dict(),
    }
    with new_model_folder(Path(folder), force, read) as new:
        write_tensors(new, tensors, shard_bytes)
        write_companions(new, pretrained)
        write_table(new / "config.json", table)


def _encode_weight(pretrained: Pretrained, name: str, type: str, exact: bool) -> Array:
    return encode(np.asarray(pretrained.weights[name]), type, exact)

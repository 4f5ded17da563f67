"""Reads a Hugging Face folder, or a module of `transformers`: config by allow-list, tensors renamed."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.base.dtypes import FLOAT_STORAGE, Array, dtype_code, dtype_name
from pellucid.base.errors import ConfigError, FileError, UsageError, not_one_of, show
from pellucid.base.files import need, validating
from pellucid.config import ModelConfig
from pellucid.formats.companions import read_companions
from pellucid.formats.folder import file_in, has_file, read_table
from pellucid.formats.huggingface import families
from pellucid.formats.huggingface.families import Family, Link
from pellucid.formats.pretrained import LazyTensor, LazyWeights, Pretrained, Provenance, shape_mismatch
from pellucid.formats.safetensors_file import INDEX, ONE_FILE, StoredTensor, describe_wrong_type, read_tensors

if TYPE_CHECKING:
    from torch import Tensor

PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")


def read(folder: str | Path) -> Pretrained:
    """Returns the model of a folder that `transformers` wrote. Its weights are read when they are used."""
    path = Path(folder)
    given = read_config(path)
    if not has_file(path, ONE_FILE) and not has_file(path, INDEX):
        pickled = next((name for name in PICKLED if has_file(path, name)), None)
        if pickled:
            raise FileError(
                f"{path} has its weights in {pickled}, a pickle, which can run code when it is opened. "
                "`pellucid import` converts it to a folder with safetensors."
            )
        raise FileError(f"{path} has no weights: neither {ONE_FILE} nor {INDEX}.")
    return assemble(path, given, read_tensors(path))


def read_config(folder: Path) -> dict[str, Any]:
    """Returns the table of `config.json`; raises where its architecture is not supported."""
    path = file_in(folder, "config.json")
    given = read_table(path)
    model_type = given.get("model_type")
    if model_type not in families.family_names():
        raise FileError(not_one_of(f"{path}: model_type", model_type, families.family_names()))
    return given


def assemble(folder: Path, given: Mapping[str, Any], tensors: Mapping[str, StoredTensor]) -> Pretrained:
    """Returns a model from the table of its config.json, its tensors, and the companions in the folder."""
    family = families.find(given["model_type"])
    try:
        keys = family.select_keys(given)
        config = family.config(keys)
    except ConfigError as error:
        raise FileError(f"{folder / 'config.json'}: {error}") from None
    with validating(folder):
        named = _add_prefixes(family, tensors)
        links = list(family.links(config))
        _check_links(config, links, named)
        _check_tied(config, links, named)
    shapes = config.parameters()
    found: dict[str, LazyTensor] = {}
    types: dict[str, str] = {}
    for link in links:
        found |= dict(link.split(named[link.theirs], shapes))
        types |= dict.fromkeys(link.ours, named[link.theirs].type)
    beside = read_companions(folder, family.token_ids(keys))
    return Pretrained(
        name=folder.resolve().name,
        config=config,
        weights=LazyWeights({name: found[name] for name in shapes}),
        provenance=Provenance(folder, "huggingface", given["model_type"], types, _count_bytes(links, named)),
        **vars(beside),
    )


def _add_prefixes(family: Family, tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    named: dict[str, StoredTensor] = {}
    for name, tensor in tensors.items():
        full = family.full_name(name)
        need(full not in named, f"it has {show(full)} twice, with and without {family.prefix!r}")
        if not family.buffers.fullmatch(full):
            named[full] = tensor
    return named


def _check_links(config: ModelConfig, links: list[Link], named: Mapping[str, StoredTensor]) -> None:
    """Raises unless the tensors are exactly those of the config, with their shapes and float types."""
    shapes = config.parameters()
    wanted = {link.theirs: link.shape(shapes) for link in links}
    tied = {"lm_head.weight"} if config.unembedding.kind == "tied" else set[str]()
    why = shape_mismatch(wanted, {n: tensor.shape for n, tensor in named.items() if n not in tied}, "tensor")
    need(not why, why)
    for name in wanted:
        need(named[name].type in FLOAT_STORAGE, describe_wrong_type(name, named[name].type))


def _check_tied(config: ModelConfig, links: list[Link], named: Mapping[str, StoredTensor]) -> None:
    """Raises where a tied unembedding is stored as well and differs from the embedding."""
    head = named.get("lm_head.weight")
    if head is None or config.unembedding.kind != "tied":
        return
    embedding = next(named[link.theirs] for link in links if link.ours == ("embed.weight",))
    need(head.type in FLOAT_STORAGE, describe_wrong_type("lm_head.weight", head.type))
    need(head.shape == embedding.shape, f"lm_head.weight has the shape {head.shape}, not {embedding.shape}")
    same = np.array_equal(head.read(), embedding.read(), equal_nan=True)
    need(same, "config.json has tie_word_embeddings, but lm_head.weight is not the embedding")


def _count_bytes(links: list[Link], named: Mapping[str, StoredTensor]) -> int:
    tensors = [named[link.theirs] for link in links]
    return sum(math.prod(tensor.shape) * FLOAT_STORAGE[tensor.type].itemsize for tensor in tensors)


# ---- a module of `transformers` in memory: its config and state dict in place of a folder's files


def is_module(given: object) -> bool:
    """Returns whether it is a module with a config, as `transformers` makes them."""
    return callable(getattr(given, "state_dict", None)) and hasattr(getattr(given, "config", None), "to_dict")


def read_module(module: Any) -> Pretrained:
    """Returns the model that a module of a known family is. Its weights are read when they are used; its
    tokenizer is that of the folder from which it was loaded, where there is one."""
    given: Mapping[str, Any] = module.config.to_dict()
    known = families.family_names()
    if given.get("model_type") not in known:
        raise UsageError(not_one_of("the module's model_type", given.get("model_type"), known))
    source = str(given.get("_name_or_path") or getattr(module, "name_or_path", "") or "module")
    folder = Path(source)
    tensors = {name: _store(tensor) for name, tensor in module.state_dict().items()}
    return assemble(folder if folder.is_dir() else Path(folder.name), given, tensors)


def _store(tensor: "Tensor") -> StoredTensor:
    def copy_bits() -> Array:
        import torch

        held = tensor.detach().cpu().contiguous()
        return (held.view(torch.uint16) if held.dtype == torch.bfloat16 else held).numpy().copy()

    return StoredTensor(
        dtype_code(dtype_name(tensor.dtype)) or str(tensor.dtype), tuple(tensor.shape), copy_bits
    )

"""Reading a Hugging Face folder: its config by allow-list, its tensors under our names."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.config import ModelConfig
from pellucid.dtypes import FLOAT_STORAGE
from pellucid.errors import ConfigError, FileError, show
from pellucid.files import need, validating
from pellucid.interop.companions import read_companions
from pellucid.interop.folder import has, read_table, within
from pellucid.interop.huggingface import families
from pellucid.interop.huggingface.families import Family
from pellucid.interop.huggingface.links import Link
from pellucid.interop.safetensors_file import INDEX, ONE_FILE, Stored, not_a_weight, read_tensors
from pellucid.pretrained import LazyTensor, LazyWeights, Pretrained, Provenance, shape_mismatch

PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")


def read(folder: str | Path) -> Pretrained:
    """The model of a folder that `transformers` wrote. Its weights are read when they are used."""
    path = Path(folder)
    given = read_config(path)
    if not has(path, ONE_FILE) and not has(path, INDEX):
        pickled = next((name for name in PICKLED if has(path, name)), None)
        if pickled:
            raise FileError(
                f"{path} holds its weights as {pickled}, a kind of file that can run code when it is opened. "
                "Use `pellucid import` to make a folder with safetensors of it."
            )
        raise FileError(f"{path} holds no weights: there is no {ONE_FILE} and no {INDEX}.")
    return assembled(path, given, read_tensors(path))


def read_config(folder: Path) -> dict[str, Any]:
    """The table of `config.json`, if its architecture is one that is read."""
    path = within(folder, "config.json")
    given = read_table(path)
    model_type = given.get("model_type")
    if model_type not in families.known():
        have = ", ".join(families.known())
        raise FileError(f"{path}: the architecture {show(model_type)} is not read; have {have}.")
    return given


def assembled(folder: Path, given: Mapping[str, Any], tensors: Mapping[str, Stored]) -> Pretrained:
    """A model from the table of its config.json, its tensors, and what stands beside them in the folder."""
    family = families.find(given["model_type"])
    try:
        keys = family.understood(given)
        config = family.config(keys)
    except ConfigError as error:
        raise FileError(f"{folder / 'config.json'}: {error}") from None
    with validating(folder):
        named = _full_names(family, tensors)
        links = list(family.links(config))
        _check_links(config, links, named)
        _check_tied(config, links, named)
    shapes = config.parameters()
    found: dict[str, LazyTensor] = {}
    types: dict[str, str] = {}
    for link in links:
        found |= dict(link.apart(named[link.theirs], shapes))
        types |= dict.fromkeys(link.ours, named[link.theirs].type)
    beside = read_companions(folder, family.token_ids(keys))
    return Pretrained(
        name=folder.resolve().name,
        config=config,
        weights=LazyWeights({name: found[name] for name in shapes}),
        tokenizer=beside.tokenizer,
        provenance=Provenance(folder, "huggingface", given["model_type"], types, _bytes(links, named)),
        chat_template=beside.chat_template,
        add_bos=beside.add_bos,
        generation=beside.generation,
    )


def _full_names(family: Family, tensors: Mapping[str, Stored]) -> dict[str, Stored]:
    named: dict[str, Stored] = {}
    for name, tensor in tensors.items():
        full = family.full_name(name)
        need(full not in named, f"it holds {show(full)} twice, with and without {family.prefix!r}")
        if not family.buffers.fullmatch(full):
            named[full] = tensor
    return named


def _check_links(config: ModelConfig, links: list[Link], named: Mapping[str, Stored]) -> None:
    """Raises unless every tensor is there, of the right shape and type, and there are no others."""
    shapes = config.parameters()
    wanted = {link.theirs: link.shape(shapes) for link in links}
    tied = {"lm_head.weight"} if config.unembedding.kind == "tied" else set[str]()
    why = shape_mismatch(wanted, {n: tensor.shape for n, tensor in named.items() if n not in tied}, "tensor")
    need(not why, why)
    for name in wanted:
        need(named[name].type in FLOAT_STORAGE, not_a_weight(name, named[name].type))


def _check_tied(config: ModelConfig, links: list[Link], named: Mapping[str, Stored]) -> None:
    """A tied unembedding that is stored all the same must be the embedding."""
    head = named.get("lm_head.weight")
    if head is None or config.unembedding.kind != "tied":
        return
    embedding = next(named[link.theirs] for link in links if link.ours == ("embed.weight",))
    need(head.type in FLOAT_STORAGE, not_a_weight("lm_head.weight", head.type))
    need(head.shape == embedding.shape, f"lm_head.weight has the shape {head.shape}, not {embedding.shape}")
    same = np.array_equal(head.read(), embedding.read(), equal_nan=True)
    need(same, "config.json says tie_word_embeddings, and lm_head.weight is not the embedding")


def _bytes(links: list[Link], named: Mapping[str, Stored]) -> int:
    tensors = [named[link.theirs] for link in links]
    return sum(math.prod(tensor.shape) * FLOAT_STORAGE[tensor.type].itemsize for tensor in tensors)

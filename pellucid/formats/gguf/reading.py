"""Reads a GGUF file: its metadata as a config and a tokenizer, its tensors as weights."""

import math
from functools import partial
from pathlib import Path

from pellucid.base.files import need
from pellucid.base.quantized import is_quantizable
from pellucid.formats.gguf import architectures
from pellucid.formats.gguf.architectures import Architecture, Place
from pellucid.formats.gguf.container import (
    Container,
    Metadata,
    read_container,
    reading_errors,
    require_support,
    show_name,
)
from pellucid.formats.gguf.tokenizer import read_companions
from pellucid.formats.pretrained import LazyTensor, LazyWeights, Pretrained, Provenance, Shape, check_shapes


def read(path: str | Path) -> Pretrained:
    """Returns the model of a file. Its weights are read when they are used, as float32, or `as_stored`."""
    path = Path(path)
    with reading_errors(path):
        container = read_container(path)
        kind = container.metadata.get("general.architecture")
        need(isinstance(kind, str) and len(kind) < 64, "general.architecture is missing or not a name")
        _check_whole_model(container)
        architecture = architectures.find(str(kind))
        embedding = container.tensors.get("token_embd.weight")
        implied = {"vocab_size": embedding.shape[0]} if embedding else {}
        tables = {name: container.rows(name) for name in architecture.tables if name in container.tensors}
        config = architecture.config(
            Metadata(container.metadata, str(kind), implied, tables), container.tensors
        )
        need(config.n_layer <= len(container.tensors), f"it claims {config.n_layer:,} layers")
        places = _find_places(container, architecture, config.n_layer)
        tensors = {name: _make_tensor(container, name, place) for name, place in places.items()}
        check_shapes(config, {name: tensor.shape for name, tensor in tensors.items()})
        beside = read_companions(container.metadata, config.vocab_size, str(path))
    name = container.metadata.get("general.name")
    types = {name: container.tensors[place.tensor].type.name for name, place in places.items()}
    return Pretrained(
        name if isinstance(name, str) and name else path.stem,
        config,
        LazyWeights({name: tensors[name] for name in config.parameters()}),
        provenance=Provenance(path, "gguf", str(kind), types, len(container.data)),
        **vars(beside),
    )


def _check_whole_model(container: Container) -> None:
    kind, parts = container.metadata.get("general.type", "model"), container.metadata.get("split.count", 1)
    model, alone = isinstance(kind, str) and kind == "model", isinstance(parts, int) and parts in (0, 1)
    require_support(model, f"its general.type is {kind!r:.80}; only models are supported")
    require_support(alone, f"it is one of {parts!r:.80} shards of a model; merge them into one file first")


def _find_places(container: Container, architecture: Architecture, layers: int) -> dict[str, Place]:
    """Returns the place of each weight in the file; every tensor of the file must hold one."""
    places = {
        name: place
        for name, place in architecture.places(layers).items()
        if place.tensor in container.tensors
    }
    known = {place.tensor for place in places.values()} | set(architecture.tables)
    for name in container.tensors:
        require_support(name in known, f"it has an unknown tensor {show_name(name)!r}")
    return places


def _make_tensor(container: Container, name: str, place: Place) -> LazyTensor:
    stored = container.tensors[place.tensor]
    shape: Shape = stored.shape
    need(shape[0] % place.of == 0, f"the tensor {place.tensor} does not split into {place.of} equal parts")
    begin, end = place.rows(shape[0])
    shape = (end - begin, *shape[1:])
    whole = math.prod(shape) % stored.type.size == 0
    need(whole, f"the parts of the tensor {place.tensor} do not fill blocks of {stored.type.name}")
    blocks = None
    if stored.type.integers is not None and is_quantizable(name, shape):
        blocks = LazyTensor(shape, partial(container.blocks, place.tensor, begin, end), stored.type.name)
    return LazyTensor(shape, partial(container.rows, place.tensor, begin, end), stored=blocks)

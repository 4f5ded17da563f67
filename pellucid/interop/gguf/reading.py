"""Reading a GGUF file: facts become a config, tensors our weights, words a tokenizer."""

import math
from functools import partial
from pathlib import Path

from pellucid.dtypes import Array
from pellucid.files import need
from pellucid.interop.gguf import architectures
from pellucid.interop.gguf.architectures import Architecture, Place
from pellucid.interop.gguf.container import Container, read_container, shown
from pellucid.interop.gguf.facts import Facts
from pellucid.interop.gguf.opening import opening, support
from pellucid.interop.gguf.tokenizer import read_words
from pellucid.pretrained import LazyTensor, LazyWeights, Pretrained, Provenance, Shape, check_shapes


def read(path: str | Path) -> Pretrained:
    """The model of a file. LazyWeights are read when they are asked for, and then are float32."""
    path = Path(path)
    with opening(path):
        container = read_container(path)
        kind = container.facts.get("general.architecture")
        need(isinstance(kind, str) and len(kind) < 64, "general.architecture is missing, or no name")
        _check_whole_model(container)
        architecture = architectures.find(str(kind))
        embedding = container.tensors.get("token_embd.weight")
        implied = {"vocab_size": embedding.shape[0]} if embedding else {}
        tables = {name: _table(container, name) for name in architecture.tables if name in container.tensors}
        config = architecture.config(Facts(container.facts, str(kind), implied, tables), container.tensors)
        need(config.n_layer <= len(container.tensors), f"it says that it has {config.n_layer:,} layers")
        places = _places(container, architecture, config.n_layer)
        tensors = {name: _tensor(container, place) for name, place in places.items()}
        check_shapes(config, {name: tensor.shape for name, tensor in tensors.items()})
        words = read_words(container.facts, config.vocab_size, str(path))
    name = container.facts.get("general.name")
    types = {name: container.tensors[place.tensor].type.name for name, place in places.items()}
    return Pretrained(
        name if isinstance(name, str) and name else path.stem,
        config,
        LazyWeights({name: tensors[name] for name in config.parameters()}),
        words.tokenizer,
        Provenance(path, "gguf", str(kind), types, len(container.data)),
        words.chat_template,
        words.add_bos,
        words.generation,
    )


def _check_whole_model(container: Container) -> None:
    kind, parts = container.facts.get("general.type", "model"), container.facts.get("split.count", 1)
    model, alone = isinstance(kind, str) and kind == "model", isinstance(parts, int) and parts in (0, 1)
    support(model, f"it holds a thing of the type {kind!r:.80}, and only models are read")
    support(alone, f"it is one of {parts!r:.80} files of a model; join them into one first")


def _places(container: Container, architecture: Architecture, layers: int) -> dict[str, Place]:
    """The weights that the file has, each with its place; every tensor of the file is one of them."""
    places = {
        name: place
        for name, place in architecture.places(layers).items()
        if place.tensor in container.tensors
    }
    known = {place.tensor for place in places.values()} | set(architecture.tables)
    for name in container.tensors:
        support(name in known, f"it has a tensor {shown(name)!r}, which is not known here")
    return places


def _table(container: Container, name: str) -> Array:
    return container.rows(name, 0, container.tensors[name].shape[0])


def _tensor(container: Container, place: Place) -> LazyTensor:
    stored = container.tensors[place.tensor]
    shape: Shape = stored.shape
    need(shape[0] % place.of == 0, f"the tensor {place.tensor} does not split into {place.of} equal parts")
    begin, end = place.rows(shape[0])
    shape = (end - begin, *shape[1:])
    whole = math.prod(shape) % stored.type.size == 0
    need(whole, f"the parts of the tensor {place.tensor} do not fill blocks of {stored.type.name}")
    return LazyTensor(shape, partial(container.rows, place.tensor, begin, end))

"""Families of Hugging Face models: how each stores our config and weights. The folder is the registry: a
family is the file that its `model_type` names.

Both directions use the same tables: the keys of `config.json`, and the names of the tensors.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from pellucid import parts
from pellucid.base import registry
from pellucid.base.dtypes import Array, decode, encode
from pellucid.base.errors import ConfigError, not_one_of
from pellucid.config import ModelConfig
from pellucid.formats.huggingface.keys import HARMLESS, TOKEN_IDS, USUAL, Keys, select_keys
from pellucid.formats.pretrained import LazyTensor, Shape
from pellucid.formats.safetensors_file import StoredTensor


@dataclass(frozen=True)
class Link:
    """One tensor of theirs, and the weights of ours that it holds, concatenated by rows, each (out, in).

    With several `groups` the rows of each weight are split into that many equal parts, and theirs has the
    first part of each, then the second of each: q, k, v of head 0, then of head 1.
    """

    theirs: str
    ours: tuple[str, ...]
    transposed: bool = False
    groups: int = 1

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        rows = sum(shapes[name][0] for name in self.ours)
        shape = (rows, *shapes[self.ours[0]][1:])
        return shape[::-1] if self.transposed else shape

    def split(self, stored: StoredTensor, shapes: Mapping[str, Shape]) -> Iterator[tuple[str, LazyTensor]]:
        start = 0
        for name in self.ours:
            rows = slice(start, start := start + shapes[name][0] // self.groups)
            yield name, LazyTensor(shapes[name], partial(self._read_rows, stored, rows, shapes[name]))

    def _read_rows(self, stored: StoredTensor, rows: slice, shape: Shape) -> Array:
        """Reads and decodes only these rows of each group."""
        bits = stored.bits()
        bits = self._group_rows(bits.T if self.transposed else bits)[:, rows].reshape(shape)
        return decode(np.ascontiguousarray(bits), stored.type)

    def join(
        self, weights: Mapping[str, Array], shapes: Mapping[str, Shape], type: str, exact: bool
    ) -> StoredTensor:
        return StoredTensor(type, self.shape(shapes), partial(self._join_bits, weights, type, exact))

    def _join_bits(self, weights: Mapping[str, Array], type: str, exact: bool) -> Array:
        bits = [encode(np.asarray(weights[name]), type, exact) for name in self.ours]
        joined = bits[0]
        if len(bits) > 1:
            joined = np.concatenate([self._group_rows(part) for part in bits], axis=1)
            joined = joined.reshape(-1, *bits[0].shape[1:])
        return joined.T if self.transposed else joined

    def _group_rows(self, rows: Array) -> Array:
        return rows.reshape(self.groups, -1, *rows.shape[1:])


ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "relu": "relu",
    "relu2": "relu_squared",
    "silu": "silu",
    "swish": "silu",
}
"""Their activations and ours; of several names for one, the first is written."""


class Family(ABC):
    architectures: ClassVar[tuple[str, ...]]
    """The classes of `transformers` with these tensors; the first is written."""
    defaults: ClassVar[Mapping[str, Any]]
    """The supported keys, with the defaults of `transformers`."""
    sizes: ClassVar[Mapping[str, str]]
    """Their keys that are one of our sizes."""
    spellings: ClassVar[Mapping[str, str]] = {}
    usual: ClassVar[Mapping[str, tuple[Any, ...]]]
    harmless: ClassVar[frozenset[str]]
    prefix: ClassVar[str]
    """The prefix of all tensors but the unembedding; some files omit it."""
    tensors: ClassVar[tuple[tuple[str, ...], ...]]
    """Theirs first, then ours: several where theirs concatenates several. `{}` is the layer's number."""
    transposed: ClassVar[tuple[str, ...]] = ()
    """The endings of the names that are stored (in, out)."""
    by_head: ClassVar[tuple[str, ...]] = ()
    """The endings of the names that store the rows of q, k and v head by head."""
    buffers: ClassVar[re.Pattern[str]]
    """Tensors of old files that are not trained."""

    @abstractmethod
    def config(self, keys: Keys) -> ModelConfig:
        """Returns our config for their keys."""

    @abstractmethod
    def keys(self, config: ModelConfig) -> dict[str, Any]:
        """Returns their keys for our config, as far as they can express it."""

    def read_sizes(self, keys: Keys) -> dict[str, Any]:
        """Returns what all families say alike: the sizes, and whether the unembedding is the embedding."""
        tied = {"unembedding": "tied" if keys.flag("tie_word_embeddings") else "linear"}
        return {ours: keys.size(theirs) for theirs, ours in self.sizes.items()} | tied

    def write_sizes(self, config: ModelConfig) -> dict[str, Any]:
        return {theirs: getattr(config, ours) for theirs, ours in self.sizes.items()}

    def limits(self, config: ModelConfig) -> list[str]:
        """Returns further requirements of `transformers` that the config does not meet."""
        return []

    def select_keys(self, given: Mapping[str, Any]) -> Keys:
        named = given.get("architectures")
        known = isinstance(named, list) and len(named) == 1 and named[0] in self.architectures
        if named is not None and not known:
            raise ConfigError(
                not_one_of("architectures must be a list of one class, which", named, self.architectures)
            )
        rest = {key: value for key, value in given.items() if key not in ("architectures", "model_type")}
        usual = {**USUAL, **self.usual}
        return select_keys(rest, self.defaults, self.spellings, usual, HARMLESS | self.harmless)

    def token_ids(self, keys: Keys) -> dict[str, Any]:
        return {name: keys[name] for name in TOKEN_IDS if keys[name] is not None}

    def links(self, config: ModelConfig) -> Iterator[Link]:
        """Yields which tensors of theirs hold which weights of ours, in the order of the computation."""
        shapes = config.parameters()
        for theirs, *ours in self.tensors:
            for layer in range(config.n_layer) if "{}" in theirs else range(1):
                for end in (".weight", ".bias"):
                    names = tuple(name.format(layer) + end for name in ours)
                    if names[0] in shapes:
                        name = theirs.format(layer) + end
                        groups = config.n_head if name.endswith(self.by_head) else 1
                        yield Link(name, names, name.endswith(self.transposed), groups)

    def full_name(self, name: str) -> str:
        """Returns a tensor's name with the prefix, whether the file has it or not."""
        return name if name.startswith((self.prefix, "lm_head.")) else self.prefix + name


def family_names() -> list[str]:
    """Returns the `model_type`s that are read and written."""
    return registry.kinds(__name__)


def find(model_type: str) -> Family:
    return registry.class_of(__name__, model_type, "Hugging Face family", Family)()  # type: ignore[type-abstract]


def find_mlp(form: str, activation: str) -> str:
    """Returns the kind of our feed-forward with that form and activation."""
    ours = ACTIVATIONS.get(activation)
    found = {
        part.activation: kind
        for kind in parts.kinds("mlps")
        if getattr(part := parts.find("mlps", kind), "form", "") == form and hasattr(part, "activation")
    }
    if ours not in found:
        names = [name for name, curve in ACTIVATIONS.items() if curve in found]
        raise ConfigError(not_one_of(f"the activation of a {form} feed-forward", activation, names))
    return found[ours]


def activation_name(config: ModelConfig) -> str:
    ours = getattr(config.mlp, "activation", config.mlp.kind)
    return next((theirs for theirs, curve in ACTIVATIONS.items() if curve == ours), ours)

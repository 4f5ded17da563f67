"""How one architecture's folder spells what our config and weights say. The folder is the registry:
a family is the file that its `model_type` names.

Both directions come from the same tables: the keys of `config.json`, and the names of the tensors.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from pellucid import parts, registry
from pellucid.config import ModelConfig
from pellucid.errors import ConfigError, show
from pellucid.interop.huggingface.keys import HARMLESS, TOKEN_IDS, USUAL, Keys, understood
from pellucid.interop.huggingface.links import Link

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
    """The classes of `transformers` whose tensors these are; the first is written."""
    defaults: ClassVar[Mapping[str, Any]]
    """The keys that are understood, with the values that `transformers` takes where they are absent."""
    spellings: ClassVar[Mapping[str, str]] = {}
    usual: ClassVar[Mapping[str, tuple[Any, ...]]]
    harmless: ClassVar[frozenset[str]]
    prefix: ClassVar[str]
    """What the tensors of the model without its unembedding begin with; some files leave it out."""
    tensors: ClassVar[tuple[tuple[str, ...], ...]]
    """Theirs first, then ours: several where theirs holds several. `{}` is a layer's number."""
    transposed: ClassVar[tuple[str, ...]] = ()
    """How the names of those end that are stored (in, out)."""
    by_head: ClassVar[tuple[str, ...]] = ()
    """How the names of those end that hold the rows of all of ours for head 0, then for head 1, and so on."""
    buffers: ClassVar[re.Pattern[str]]
    """Tensors that old files carry and that hold nothing trained."""

    @abstractmethod
    def config(self, keys: Keys) -> ModelConfig:
        """Our config for their keys."""

    @abstractmethod
    def keys(self, config: ModelConfig) -> dict[str, Any]:
        """Their keys for our config, as well as they can say it."""

    def limits(self, config: ModelConfig) -> list[str]:
        """What `transformers` itself asks of a config beyond what the keys can say."""
        return []

    def understood(self, given: Mapping[str, Any]) -> Keys:
        named = given.get("architectures")
        known = isinstance(named, list) and len(named) == 1 and named[0] in self.architectures
        if named is not None and not known:
            raise ConfigError(f"architectures is {show(named)}; have {', '.join(self.architectures)}.")
        rest = {key: value for key, value in given.items() if key not in ("architectures", "model_type")}
        usual = {**USUAL, **self.usual}
        return understood(rest, self.defaults, self.spellings, usual, HARMLESS | self.harmless)

    def token_ids(self, keys: Keys) -> dict[str, Any]:
        return {name: keys[name] for name in TOKEN_IDS if keys[name] is not None}

    def links(self, config: ModelConfig) -> Iterator[Link]:
        """Which tensors of theirs hold which weights of ours, in the order of the computation."""
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
        """A tensor's name with the prefix, whether the file has it or not."""
        return name if name.startswith((self.prefix, "lm_head.")) else self.prefix + name


def known() -> list[str]:
    """The `model_type`s that are read and written."""
    return registry.kinds(__name__)


def find(model_type: str) -> Family:
    return registry.class_of(__name__, model_type, "Hugging Face family", Family)()  # type: ignore[type-abstract]


def mlp_kind(form: str, activation: str) -> str:
    """Our feed-forward of that form with that activation."""
    ours = ACTIVATIONS.get(activation)
    found = {
        part.activation: kind
        for kind in parts.kinds("mlps")
        if getattr(part := parts.find("mlps", kind), "form", "") == form and hasattr(part, "activation")
    }
    if ours not in found:
        names = [name for name, curve in ACTIVATIONS.items() if curve in found]
        raise ConfigError(
            f"the activation {show(activation)} is not here for a {form} feed-forward; "
            f"have {', '.join(names)}."
        )
    return found[ours]


def activation_of(config: ModelConfig) -> str:
    ours = getattr(config.mlp, "activation", config.mlp.kind)
    return next((theirs for theirs, curve in ACTIVATIONS.items() if curve == ours), ours)

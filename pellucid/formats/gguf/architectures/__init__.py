"""GGUF architectures: how each stores a config and its weights. The folder is the registry of their names."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pellucid.base import registry
from pellucid.base.dtypes import Array
from pellucid.base.errors import ConfigError, not_one_of
from pellucid.config import ModelConfig
from pellucid.formats.gguf.container import Metadata, Value


@dataclass(frozen=True)
class Place:
    """Where a weight is stored: in the tensor of this name, as part `part` of `of` equal parts by rows."""

    tensor: str
    part: int = 0
    of: int = 1

    def rows(self, count: int) -> tuple[int, int]:
        size = count // self.of
        return self.part * size, (self.part + 1) * size


SIZES = {
    "vocab_size": "vocab_size",
    "context_length": "context_length",
    "embedding_length": "d_model",
    "block_count": "n_layer",
    "feed_forward_length": "d_ff",
    "attention.head_count": "n_head",
}
"""The keys of every architecture that are one of our sizes."""


class Architecture:
    """One architecture. `names` has each weight's place, with L for the layer's number; `harmless` the keys
    that may be present with values that change nothing; `always_f32` the tensors that are never quantized."""

    names: ClassVar[Mapping[str, str | Place]]
    harmless: ClassVar[Mapping[str, Value]]
    biases: ClassVar[Mapping[str, str]]
    """For each group of biases in the config, a tensor that is present if the model has them."""
    always_f32: ClassVar[tuple[str, ...]] = ()
    layout: ClassVar[str] = "halves"
    """RoPE's layout; the rows of W_Q and W_K are stored accordingly."""
    tables: ClassVar[tuple[str, ...]] = ()
    """Tensors that are not weights but settings of the config."""

    def choices(self, metadata: Metadata) -> dict[str, Any]:
        """Returns the config's sizes and parts, except those that follow from which tensors are present."""
        return {ours: metadata.integer(theirs) for theirs, ours in SIZES.items()}

    def metadata(self, config: ModelConfig) -> dict[str, Value]:
        """Returns the metadata of this config, as far as this architecture can express it."""
        return {theirs: getattr(config, ours) for theirs, ours in SIZES.items()}

    def numbers(self, config: ModelConfig) -> dict[str, Array]:
        """Returns the tensors that are settings of this config."""
        return {}

    def config(self, metadata: Metadata, tensors: Collection[str]) -> ModelConfig:
        """Returns the config of a file from its metadata and the names of its tensors."""
        choices = self.choices(metadata)
        metadata.refuse_others(self.harmless)
        return ModelConfig.from_dict(
            choices
            | {
                "unembedding": "linear" if "output.weight" in tensors else "tied",
                "biases": [place for place, tensor in self.biases.items() if tensor in tensors],
            }
        )

    def places(self, layers: int) -> dict[str, Place]:
        """Returns the place of every weight that a model with this number of layers may have."""
        places = {ours: at if isinstance(at, Place) else Place(at) for ours, at in self.names.items()}
        return {
            name.replace(".L.", f".{layer}."): Place(at.tensor.replace(".L.", f".{layer}."), at.part, at.of)
            for name, at in places.items()
            for layer in (range(layers) if ".L." in name else (0,))
        }


def architectures() -> list[str]:
    return registry.kinds(__name__)


def find(kind: str) -> Architecture:
    if kind not in architectures():
        raise ConfigError(not_one_of("general.architecture", kind, architectures()))
    return registry.class_of(__name__, kind, "GGUF architecture", Architecture)()

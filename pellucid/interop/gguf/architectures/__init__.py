"""How each kind of model is written in GGUF. The folder is the registry: a kind is the name of its file."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pellucid import registry
from pellucid.config import ModelConfig
from pellucid.dtypes import Array
from pellucid.interop.gguf.container import Value
from pellucid.interop.gguf.facts import Facts


@dataclass(frozen=True)
class Place:
    """Where a weight of ours is: in the tensor of this name, its part `part` of `of` equal parts by rows."""

    tensor: str
    part: int = 0
    of: int = 1

    def rows(self, count: int) -> tuple[int, int]:
        size = count // self.of
        return self.part * size, (self.part + 1) * size


class Architecture(ABC):
    """One kind of model. `names` gives each weight's place, L standing for the layer's number; `harmless` the
    facts that may be there and the values at which they change nothing; `always_f32` the tensors that are
    never written in fewer bits."""

    names: ClassVar[Mapping[str, str | Place]]
    harmless: ClassVar[Mapping[str, Value]]
    biases: ClassVar[Mapping[str, str]]
    """For each place of the config that may have a bias, a tensor that is there if it has."""
    always_f32: ClassVar[tuple[str, ...]] = ()
    layout: ClassVar[str] = "halves"
    """Which channels RoPE turns together; the rows of queries and keys are stored accordingly."""
    tables: ClassVar[tuple[str, ...]] = ()
    """Tensors that hold no weights, but a choice of the config in numbers."""

    @abstractmethod
    def choices(self, facts: Facts) -> dict[str, Any]:
        """The config's sizes and parts, all but what the presence of tensors tells."""

    @abstractmethod
    def facts(self, config: ModelConfig) -> dict[str, Value]:
        """The facts that say this config, as far as this architecture can."""

    def numbers(self, config: ModelConfig) -> dict[str, Array]:
        """The tables that say this config."""
        return {}

    def config(self, facts: Facts, tensors: Collection[str]) -> ModelConfig:
        """The config that a file's facts and the names of its tensors say."""
        choices = self.choices(facts)
        facts.refuse_the_rest(self.harmless)
        return ModelConfig.from_dict(
            choices
            | {
                "unembedding": "linear" if "output.weight" in tensors else "tied",
                "biases": [place for place, tensor in self.biases.items() if tensor in tensors],
            }
        )

    def places(self, layers: int) -> dict[str, Place]:
        """The place of every weight that a model of so many layers may have."""
        places = {ours: at if isinstance(at, Place) else Place(at) for ours, at in self.names.items()}
        return {
            name.replace(".L.", f".{layer}."): Place(at.tensor.replace(".L.", f".{layer}."), at.part, at.of)
            for name, at in places.items()
            for layer in (range(layers) if ".L." in name else (0,))
        }


def architectures() -> list[str]:
    return registry.kinds(__name__)


def find(kind: str) -> Architecture:
    return registry.class_of(__name__, kind, "GGUF architecture", Architecture)()  # type: ignore[type-abstract]

"""A model as a file holds it: what every reader returns and every writer takes."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pellucid import notebook
from pellucid.config import ModelConfig
from pellucid.dtypes import BY_NAME, FLOAT_STORAGE, Array
from pellucid.errors import FileError, did_you_mean
from pellucid.files import need
from pellucid.format import escape_controls, pluralize
from pellucid.text.tokenizer import Tokenizer

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Source:
    """Where a model came from. `types` says how each weight is stored there: "F32", "BF16", "Q4_1"."""

    path: Path
    format: str
    architecture: str
    types: Mapping[str, str]
    bytes: int


@dataclass(frozen=True)
class Tensor:
    """A weight that is read when it is asked for."""

    shape: Shape
    read: Callable[[], Array]


class Weights(Mapping[str, Array]):
    """Arrays under our names, each read from its file when asked for, so that a large model is never in
    memory twice. float32, or as wide as it is stored."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = tensors

    def __getitem__(self, name: str) -> Array:
        return self.tensors[name].read()

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def __repr__(self) -> str:
        count = parameter_count({name: tensor.shape for name, tensor in self.tensors.items()})
        what = f"{pluralize(len(self), 'array')} with {count:,} numbers"
        return notebook.summarize("Weights", what, self._sizes())

    def _repr_html_(self) -> str:
        return notebook.listing(repr(self), ("weight", "shape"), self._sizes())

    def _sizes(self) -> list[tuple[str, str]]:
        return [(name, str(list(tensor.shape))) for name, tensor in self.tensors.items()]


@dataclass(frozen=True)
class Pretrained:
    """`generation` holds what the file says about ends and sampling, in Hugging Face's keys; `add_bos`
    whether a text begins with the tokenizer's bos token."""

    name: str
    config: ModelConfig
    weights: Mapping[str, Array]
    tokenizer: Tokenizer | None
    source: Source
    chat_template: str | None = None
    add_bos: bool = False
    generation: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        count = parameter_count(self.config.parameters())
        return escape_controls(
            f"<Pretrained {self.name}: {count:,} parameters, {self.source.format}>", keep=""
        )


def check_token_ids(pretrained: Pretrained) -> None:
    """Raises where a model names a special token that its vocabulary does not have: other programs refuse a
    file with such an id, or read beyond their tables."""
    size, wrong = pretrained.config.vocab_size, list[str]()
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        given = pretrained.generation.get(key)
        ids = given if isinstance(given, list) else [] if given is None else [given]
        wrong += [f"{key} {id}" for id in ids if not 0 <= id < size]
    if wrong:
        raise FileError(
            f"{pretrained.source.path} names tokens beyond its vocabulary: {', '.join(wrong)}, where ids go "
            f"from 0 to {size - 1:,}. Correct its config.json and generation_config.json, and try again."
        )


def stored_dtype(pretrained: Pretrained, name: str) -> str:
    """Returns the code of the type in which a weight is stored: F32 where it is quantized, the array's own
    type where it is in no file."""
    code = pretrained.source.types.get(name)
    if code is None:
        own = BY_NAME.get(str(pretrained.weights[name].dtype))
        code = own.code if own else "F32"
    return code if code in FLOAT_STORAGE else "F32"


def check_shapes(config: ModelConfig, found: Mapping[str, Shape]) -> None:
    """A file's tensors are exactly the config's parameters; inside `files.validating`."""
    wanted = config.parameters()
    for name, shape in wanted.items():
        need(name in found, f"the weight {name} {shape} is missing")
        need(
            tuple(found[name]) == shape, f"the weight {name} has the shape {tuple(found[name])}, not {shape}"
        )
    for name in found:
        hint = "" if name in wanted else did_you_mean(name[:80], wanted)  # slow, so only where it is needed
        need(name in wanted, f"the weight {name!r} belongs to nothing in this config{hint}")


def parameter_count(shapes: Mapping[str, Shape]) -> int:
    return sum(math.prod(shape) for shape in shapes.values())

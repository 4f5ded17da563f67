"""A model as files hold it: config, weights, tokenizer and provenance."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from pellucid.base import notebook
from pellucid.base.dtypes import BY_NAME, FLOAT_STORAGE, Array
from pellucid.base.errors import FileError, TokenError, did_you_mean, show
from pellucid.base.files import need
from pellucid.base.formatting import escape_controls, pluralize
from pellucid.base.quantized import QuantizedWeight
from pellucid.config import ModelConfig
from pellucid.text.tokenizer import Tokenizer

Shape = tuple[int, ...]
RUN_MODELS, RUN_FILES = ("model", "best"), ("recipe.toml", "manifest.json")
"""Folders of a model in a run or a checkpoint, and the files by which those are known."""


@dataclass(frozen=True)
class Provenance:
    """Where a model came from: path, file format, architecture, the code of the type in which each weight is
    stored there ("F32", "BF16", "Q4_1"), and the size of the weights in bytes."""

    path: Path
    format: str
    architecture: str
    types: Mapping[str, str]
    bytes: int


Weight = Array | QuantizedWeight


@dataclass(frozen=True)
class LazyTensor:
    """A weight that is read from its file each time it is used.

    `type` names the integers where `read` gives a `QuantizedWeight` ("int8", "Q4_1"), and is "" for floats.
    `stored` is the weight as its file has it, where that is quantized and `read` gives floats.
    """

    shape: Shape
    read: Callable[[], Weight]
    type: str = ""
    stored: "LazyTensor | None" = None

    def map(self, change: Callable[[Weight], Weight]) -> "LazyTensor":
        """Returns the weight changed after it is read, its shape and type unchanged."""
        stored = None if self.stored is None else self.stored.map(change)
        return LazyTensor(self.shape, lambda: change(self.read()), self.type, stored)

    def to_floats(self) -> "LazyTensor":
        """Returns the weight as an array of floats: scale · integer (+ minimum) of a quantized one."""
        return LazyTensor(self.shape, lambda: np.asarray(self.read()), stored=self) if self.type else self


class LazyWeights(Mapping[str, Array]):
    """Weights by name, each read from its file when it is looked up, so that a large model is never in
    memory twice. They are float32, or float64 where that is how they are stored; a `QuantizedWeight` stands
    where its float32 numbers would, and `np.asarray` gives them."""

    def __init__(self, tensors: Mapping[str, LazyTensor]) -> None:
        self.tensors = tensors

    @classmethod
    def from_function(cls, shapes: Mapping[str, Shape], read: Callable[[str], Array]) -> "LazyWeights":
        """Returns weights of these shapes, each read by its name."""
        return cls({name: LazyTensor(shape, partial(read, name)) for name, shape in shapes.items()})

    def __getitem__(self, name: str) -> Array:
        return cast(Array, self.tensors[name].read())

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    @property
    def types(self) -> dict[str, str]:
        """The type of each weight that is quantized."""
        return {name: tensor.type for name, tensor in self.tensors.items() if tensor.type}

    def as_stored(self) -> "LazyWeights":
        """Returns the weights as their file has them, those that it has quantized as a `QuantizedWeight`."""
        return LazyWeights({name: tensor.stored or tensor for name, tensor in self.tensors.items()})

    def to_floats(self) -> "LazyWeights":
        return LazyWeights({name: tensor.to_floats() for name, tensor in self.tensors.items()})

    def __repr__(self) -> str:
        count = parameter_count({name: tensor.shape for name, tensor in self.tensors.items()})
        what = f"{pluralize(len(self), 'array')} with {count:,} numbers"
        return notebook.summarize("LazyWeights", what, self._sizes())

    def _repr_html_(self) -> str:
        return notebook.listing(repr(self), ("weight", "shape"), self._sizes())

    def _sizes(self) -> list[tuple[str, str]]:
        return [(name, str(list(tensor.shape))) for name, tensor in self.tensors.items()]


def as_lazy(weights: Mapping[str, Weight]) -> LazyWeights:
    """Returns the weights with their shapes and types; those of another mapping are looked up once for it."""
    if isinstance(weights, LazyWeights):
        return weights

    def make_tensor(name: str, weight: Weight) -> LazyTensor:
        type = f"int{weight.bits}" if isinstance(weight, QuantizedWeight) else ""
        return LazyTensor(np.shape(weight), partial(weights.__getitem__, name), type)

    return LazyWeights({name: make_tensor(name, weight) for name, weight in weights.items()})


@dataclass(frozen=True)
class Pretrained:
    """A config with its weights, tokenizer and provenance.

    `name` is what the model is called: what the user typed, or its name in the library; `own_name` is the one
    that its file gives it. `generation` holds the file's generation settings (eos_token_id, temperature, …)
    under Hugging Face's keys; `add_bos` says whether a text begins with the tokenizer's bos token.
    """

    name: str
    config: ModelConfig
    weights: Mapping[str, Array]
    tokenizer: Tokenizer | None
    provenance: Provenance
    chat_template: str | None = None
    add_bos: bool = False
    generation: dict[str, Any] = field(default_factory=dict)
    own_name: str = ""

    @property
    def short_name(self) -> str:
        """The name in what may be written to a file and sent to others: of a path the last part alone, which
        tells no folder of the user's."""
        path = Path(self.name)
        if not self.provenance.path.is_relative_to(path):  # the name is not the path of the weights
            return self.name
        return shorten_model_path(path)

    @property
    def stored_name(self) -> str:
        """The name that a file of this model gives it: the one that its own file gave it, if it had one."""
        return self.own_name or self.short_name

    def __repr__(self) -> str:
        count = parameter_count(self.config.parameters())
        return escape_controls(
            f"<Pretrained {self.name}: {count:,} parameters, {self.provenance.format}>", keep=""
        )

    def as_stored(self) -> "Pretrained":
        """Returns the same model with its weights as its file has them: quantized ones as a
        `QuantizedWeight`, where its type is one of integers with a scale for each group."""
        return replace(self, weights=as_lazy(self.weights).as_stored())

    def to_floats(self) -> "Pretrained":
        """Returns the same model with arrays of floats in place of quantized weights."""
        return replace(self, weights=as_lazy(self.weights).to_floats())

    @property
    def eos_ids(self) -> list[int]:
        """The ids of the tokens that end a text: those of the generation settings, else the tokenizer's."""
        given = self.generation.get("eos_token_id")
        if given is not None:
            return [given] if isinstance(given, int) else list(given)
        eos = self.tokenizer.special.eos if self.tokenizer else None
        id = self.tokenizer.id_of(eos) if self.tokenizer and eos else None
        return [] if id is None else [id]

    @property
    def bos_ids(self) -> list[int]:
        """The bos token, where every text of this model begins with it."""
        bos = self.tokenizer.special.bos if self.tokenizer and self.add_bos else None
        id = self.tokenizer.id_of(bos) if self.tokenizer and bos else None
        return [] if id is None else [id]

    @property
    def start_id(self) -> int | None:
        """The id of the token that a text begins with where nothing precedes it: the bos token of the
        generation settings or of the tokenizer, else eos, which separates documents, else, of characters, the
        line feed. None where there is none of them."""
        given = self.generation.get("bos_token_id")
        if given is not None or self.tokenizer is None:
            return given
        special = self.tokenizer.special
        names = (special.bos, special.eos, "\n" if self.tokenizer.kind == "characters" else None)
        found = (self.tokenizer.id_of(name) for name in names if name is not None)
        return next((id for id in found if id is not None), None)

    def need_tokenizer(self) -> Tokenizer:
        """Returns the tokenizer; a TokenError where the model came without one."""
        if self.tokenizer is None:
            raise TokenError(
                f"{self.name} came without a tokenizer: give token ids, [1, 2, 3], instead of text."
            )
        return self.tokenizer

    def encode(self, text: str, parse_special: bool = False) -> list[int]:
        """Returns the ids of a text, with the bos token in front where the model wants one."""
        return self.bos_ids + self.need_tokenizer().encode(text, parse_special)

    def encode_start(self, text: str, parse_special: bool = False) -> list[int]:
        """Returns the ids of a text to continue; an empty one is the token that a text begins with."""
        if ids := self.encode(text, parse_special):
            return ids
        if self.start_id is None:
            raise TokenError(
                f"the prompt is empty, and {self.name} has no token with which a text begins; give at least "
                "one token."
            )
        return [self.start_id]


def shorten_model_path(path: Path) -> str:
    """Returns the last part of the path of a model; of the newest or best model of a run also the name of the
    run, since these have the same names in every run.

    >>> shorten_model_path(Path("/home/ann/models/small.gguf"))
    'small.gguf'
    """
    if path.name in RUN_MODELS and any((path.parent / file).is_file() for file in RUN_FILES):
        return f"{path.parent.name}/{path.name}"
    return path.name


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
            f"{pretrained.provenance.path} names tokens beyond its vocabulary: {', '.join(wrong)}, where ids "
            f"go from 0 to {size - 1:,}. Correct its config.json and generation_config.json, and try again."
        )


def stored_dtype(pretrained: Pretrained, name: str) -> str:
    """Returns the code of the type in which a weight is stored: F32 where it is quantized, the array's own
    type where it is in no file."""
    code = pretrained.provenance.types.get(name)
    if as_lazy(pretrained.weights).tensors[name].type:
        return "F32"
    if code is None:
        own = BY_NAME.get(str(pretrained.weights[name].dtype))
        code = own.code if own else "F32"
    return code if code in FLOAT_STORAGE else "F32"


def shape_mismatch(wanted: Mapping[str, Shape], found: Mapping[str, Shape], noun: str = "weight") -> str:
    """Returns why the tensors are not exactly the wanted ones, "" where they are.

    >>> shape_mismatch({"embed.weight": (4, 2)}, {"embed.weight": (2, 4)})
    'the weight embed.weight has the shape (2, 4), not (4, 2)'
    """
    for name in found:
        if name not in wanted:  # finding a similar name is slow where there are many
            hint = did_you_mean(name[:80], wanted) if len(wanted) < 1000 else ""
            return f"the {noun} {show(name)} is not one of this config's{'.' * bool(hint)}{hint}"
    for name, shape in wanted.items():
        if name not in found:
            return f"the {noun} {name} {shape} is missing"
        if tuple(found[name]) != shape:
            return f"the {noun} {name} has the shape {tuple(found[name])}, not {shape}"
    return ""


def check_shapes(config: ModelConfig, found: Mapping[str, Shape]) -> None:
    """Raises `Damaged` unless a file's tensors are exactly the config's parameters."""
    why = shape_mismatch(config.parameters(), found)
    need(not why, why)


def parameter_count(shapes: Mapping[str, Shape]) -> int:
    return sum(math.prod(shape) for shape in shapes.values())

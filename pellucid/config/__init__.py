"""The config of a model: its sizes and choices, checked when it is made."""

import dataclasses
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

from pellucid.base import schema
from pellucid.base.arguments import check_text
from pellucid.base.errors import ConfigError, unknown
from pellucid.base.schema import OneOf, Range, fields_of
from pellucid.base.toml import parse_toml
from pellucid.parts import Part, Shapes
from pellucid.parts.attentions import AttentionConfig
from pellucid.parts.attentions.softmax import SoftmaxAttentionConfig
from pellucid.parts.caps import CapConfig, NoCap
from pellucid.parts.dropouts import DropoutConfig, NoDropout
from pellucid.parts.masks import MaskConfig
from pellucid.parts.masks.causal import Causal
from pellucid.parts.mlps import MlpConfig, Swiglu
from pellucid.parts.norms import NoNorm, NormConfig, RmsNormConfig
from pellucid.parts.outputs import LinearOutput, OutputConfig
from pellucid.parts.placements import PlacementConfig, Pre
from pellucid.parts.positions import PositionsConfig
from pellucid.parts.positions.rope import Rope
from pellucid.parts.residuals import PlainResidual, ResidualConfig
from pellucid.parts.unembeddings import TiedUnembedding, UnembeddingConfig

PRESETS = Path(__file__).with_name("presets")
BIAS_PLACES = ("qkv", "output", "mlp", "norm", "unembed")
Size = Annotated[int, Range(1, 2**31)]
Computed = Annotated[int, Range(0, 2**31)]
"""A size that is computed from the others where it is 0."""
__all__ = ["BIAS_PLACES", "ModelConfig", "Shapes", "preset", "preset_text", "presets"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes, one object per choice, and the places that have a bias.

    0 for one of the last three sizes means that it is computed from the others. A choice is given as the name
    of its kind, as a table with a `kind`, or as a part; it becomes the part.

    >>> config = ModelConfig(vocab_size=4, context_length=8, n_layer=1, n_head=2, d_model=8, norm="none")
    >>> config.d_head, config.norm
    (4, NoNorm())
    """

    vocab_size: Size
    """Number of tokens. In a recipe the tokenizer decides it.
    Example: 8192"""
    context_length: Size
    """Positions of the context; in a recipe also the tokens of a row.
    Example: 256"""
    n_layer: Annotated[int, Range(1, 10_000)]
    """Number of blocks.
    Example: 6"""
    n_head: Annotated[int, Range(1, 100_000)]
    """Query heads of each attention.
    Example: 8"""
    d_model: Size
    """Channels of the residual stream.
    Example: 512"""
    n_kv_head: Annotated[int, Range(0, 100_000)] = 0
    """Key and value heads; fewer than n_head is grouped-query attention. 0: n_head.
    Example: 2"""
    d_head: Computed = 0
    """Channels of a head. 0: d_model / n_head.
    Example: 64"""
    d_ff: Computed = 0
    """Hidden channels of the MLP. 0: the usual multiple of d_model for the kind of MLP.
    Example: 2048"""
    positions: PositionsConfig = field(default_factory=Rope)
    """Position encoding.
    Example: learned"""
    attention: AttentionConfig = field(default_factory=SoftmaxAttentionConfig)
    """How attention computes its output from queries, keys and values.
    Example: linear_elu"""
    mask: MaskConfig = field(default_factory=Causal)
    """Which keys a query attends to.
    Example: causal"""
    score_cap: CapConfig = field(default_factory=NoCap)
    """Soft cap of the attention scores.
    Example: tanh"""
    norm: NormConfig = field(default_factory=RmsNormConfig)
    """Normalization in the blocks and before the unembedding.
    Example: layer_norm"""
    placement: PlacementConfig = field(default_factory=Pre)
    """Where in a block the normalization is.
    Example: sandwich"""
    embed_norm: NormConfig = field(default_factory=NoNorm)
    """Normalization of the embeddings.
    Example: layer_norm"""
    qk_norm: NormConfig = field(default_factory=NoNorm)
    """Normalization of queries and keys.
    Example: rms_norm"""
    mlp: MlpConfig = field(default_factory=Swiglu)
    """The MLP of a block.
    Example: gelu"""
    residual: ResidualConfig = field(default_factory=PlainResidual)
    """How the output of a sub-layer is added to the residual stream.
    Example: scaled"""
    output: OutputConfig = field(default_factory=LinearOutput)
    """The output projection of attention.
    Example: linear"""
    unembedding: UnembeddingConfig = field(default_factory=TiedUnembedding)
    """The matrix that computes the logits: tied to the embedding, or separate.
    Example: linear"""
    logit_cap: CapConfig = field(default_factory=NoCap)
    """Soft cap of the logits.
    Example: tanh"""
    dropout: DropoutConfig = field(default_factory=NoDropout)
    """Activations that are zeroed at random in training.
    Example: bernoulli"""
    biases: tuple[Annotated[str, OneOf(*BIAS_PLACES)], ...] = ()
    """Places that have a bias: qkv, output, mlp, norm, unembed.
    Example: ["qkv"]"""

    def __post_init__(self) -> None:
        schema.check(self, fields_of(type(self)), "a config")
        if not self.d_head and self.d_model % self.n_head:
            down, up = self.d_model // self.n_head * self.n_head, -self.d_model % self.n_head
            works = f"d_model={down} or {self.d_model + up}" if down else f"d_model={self.n_head}"
            raise ConfigError(
                f"d_model={self.d_model} does not split into n_head={self.n_head} equal heads: "
                f"{self.d_model} / {self.n_head} = {self.d_model / self.n_head:g}. "
                f"Use {works}, or set d_head."
            )
        chosen = {
            "n_kv_head": self.n_head,
            "d_head": self.d_model // self.n_head,
            "d_ff": self.mlp.width(self.d_model),
        }
        for name, value in chosen.items():
            if not getattr(self, name):
                object.__setattr__(self, name, value)
        self._check_combination()

    def _check_combination(self) -> None:
        if self.n_head % self.n_kv_head:
            down = next(k for k in range(min(self.n_kv_head, self.n_head), 0, -1) if self.n_head % k == 0)
            raise ConfigError(
                f"n_head={self.n_head} query heads cannot share n_kv_head={self.n_kv_head} key heads "
                f"evenly. Use n_kv_head={' or '.join(map(str, dict.fromkeys((down, self.n_head))))}."
            )
        if self.output.is_none and self.n_head * self.d_head != self.d_model:
            raise ConfigError(
                f"without an output projection the heads are the output, and "
                f"n_head · d_head = {self.n_head * self.d_head} is not d_model={self.d_model}. "
                f'Use output = "linear", or d_head={self.d_model // self.n_head}.'
            )
        for part in self.parts().values():
            if why := part.check(self):
                raise ConfigError(why)

    def parameters(self) -> Shapes:
        """Returns every parameter's name and shape, in the order of the computation; a linear weight
        is stored (out, in)."""
        heads, kv_heads = self.n_head * self.d_head, self.n_kv_head * self.d_head
        attention: Shapes = {}
        for name, width in (("q_proj", heads), ("k_proj", kv_heads), ("v_proj", kv_heads)):
            attention |= {f"{name}.weight": (width, self.d_model), f"{name}.bias": (width,)}
        block = self._norms("attn") | self._with("qkv", "attn.", attention)
        for name in ("q_norm", "k_norm"):
            block |= self._with("norm", f"attn.{name}.", self.qk_norm.parameters(self.d_head))
        block |= self._with("output", "attn.", self.output.parameters(self.d_model, heads))
        if mlp := self.mlp.parameters(self.d_model, self.d_ff):
            block |= self._norms("mlp") | self._with("mlp", "mlp.", mlp)
        shapes: Shapes = {"embed.weight": (self.vocab_size, self.d_model)}
        shapes |= self.positions.parameters(self)
        shapes |= self._with("norm", "embed_norm.", self.embed_norm.parameters(self.d_model))
        for layer in range(self.n_layer):
            shapes |= {f"blocks.{layer}.{name}": shape for name, shape in block.items()}
        if self.placement.final:
            shapes |= self._with("norm", "final_norm.", self.norm.parameters(self.d_model))
        shapes |= {self.unembedding.weight: (self.vocab_size, self.d_model)}  # tied: the key of the embedding
        shapes |= self._with("unembed", "unembed.", {"bias": (self.vocab_size,)})
        return shapes

    def parts(self) -> dict[str, Part]:
        """Returns the choices, by the names of their fields."""
        values = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Part)}

    def sizes(self, batch: int, length: int) -> dict[str, int]:
        """Returns the size of each axis of the glossary, for `batch` sequences of `length` tokens."""
        return {
            "b": batch,
            "t": length,
            "s": length,
            "p": self.context_length,
            "c": self.d_model,
            "h": self.n_head,
            "k": self.n_kv_head,
            "d": self.d_head,
            "pair": self.d_head // 2,
            "f": self.d_ff,
            "v": self.vocab_size,
            "r": self.attention.feature_count(self),
            "n": self.parameters().get("position_bias.weight", (0,))[0],
            "1": 1,
        }

    def _norms(self, sub_layer: str) -> Shapes:
        shapes: Shapes = {}
        for place in self.placement.places:
            shapes |= self._with("norm", f"{sub_layer}_{place}.", self.norm.parameters(self.d_model))
        return shapes

    def _with(self, place: str, prefix: str, shapes: Shapes) -> Shapes:
        """Returns the shapes under a prefix, without biases where this config has none."""
        return {
            prefix + name: shape
            for name, shape in shapes.items()
            if place in self.biases or not name.endswith("bias")
        }

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Self:
        """Returns a config from plain data; an unknown key is an error."""
        return schema.read(fields_of(cls), given, "a config", cls, error=ConfigError)

    @classmethod
    def check_choices(cls, given: Mapping[str, Any]) -> None:
        """Raises for an unknown key and for a wrong value, before all sizes are known."""
        fields = (dataclasses.replace(field, default=None) for field in fields_of(cls))
        schema.read(fields, given, "a config", error=ConfigError)

    @classmethod
    def from_json(cls, text: str) -> Self:
        try:
            return cls.from_dict(json.loads(check_text("text", text)))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"this config is not JSON: {error}.") from None

    @classmethod
    def from_toml(cls, text: str) -> Self:
        return cls.from_dict(parse_toml(check_text("text", text), "this config", ConfigError))

    def to_dict(self) -> dict[str, Any]:
        values = ((entry.name, getattr(self, entry.name)) for entry in dataclasses.fields(self))
        return {
            name: value.to_dict()
            if isinstance(value, Part)
            else list(value)
            if isinstance(value, tuple)
            else value
            for name, value in values
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)


def presets() -> list[str]:
    """Returns the names of the presets: the files of `presets/`."""
    return sorted(entry.name.removesuffix(".toml") for entry in PRESETS.iterdir())


def preset_text(name: str) -> str:
    if name not in presets():
        raise ConfigError(unknown("a preset", name, presets()))
    return (PRESETS / f"{name}.toml").read_text("utf-8")


def preset(name: str) -> ModelConfig:
    """Returns the config of a preset: preset("gpt2")."""
    return ModelConfig.from_dict(tomllib.loads(preset_text(name))["config"])

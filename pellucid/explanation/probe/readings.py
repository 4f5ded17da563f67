"""Other readings of the same weights: each loads without complaint, and computes another model.

A reading is a config with weights, so that the fast engine computes it. Each choice yields the alternatives
to the reading that it is given; the choices come in the order of what a wrong one costs.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pellucid.base.errors import ConfigError
from pellucid.config import ModelConfig
from pellucid.parts.attentions.softmax import SoftmaxAttentionConfig
from pellucid.parts.caps import NoCap
from pellucid.parts.masks.causal import Causal
from pellucid.parts.masks.window import Window
from pellucid.parts.mlps import (
    GatedMlpConfig,
    Geglu,
    GegluTanh,
    Gelu,
    GeluTanh,
    Relu,
    ReluSquared,
    Silu,
    Swiglu,
)
from pellucid.parts.norms import LayerNormConfig, NoNorm, RmsNormConfig
from pellucid.parts.positions.none import NoPositions
from pellucid.parts.positions.rope import Rope
from pellucid.parts.positions.rope_linear import RopeLinear
from pellucid.parts.positions.rope_llama3 import RopeLlama3
from pellucid.parts.positions.rope_yarn import RopeYarn
from pellucid.parts.unembeddings import LinearUnembedding, TiedUnembedding

Weights = Mapping[str, Any]


@dataclass(frozen=True)
class ModelReading:
    """A config and weights that fit it; `value` says what was changed in the weights: "transposed"."""

    config: ModelConfig
    weights: Weights
    value: str = ""

    def change(
        self, value: str = "", weights: Weights | None = None, **choices: Any
    ) -> "ModelReading | None":
        """Returns the reading with other choices, and with these weights in place of its own; None where no
        model can have these choices. Weights that the new config does not have are left out."""
        try:
            config = replace(self.config, **choices)
        except ConfigError:
            return None
        held = {**self.weights, **(weights or {})}
        return ModelReading(config, {name: held[name] for name in config.parameters()}, value)

    def weight(self, name: str) -> np.ndarray[Any, np.dtype[Any]]:
        """Returns a weight as floats: a quantized one is dequantized."""
        return np.asarray(self.weights[name])

    def find_weights(self, *endings: str) -> list[str]:
        """Returns the names of the weights with one of these endings."""
        return [name for name in self.config.parameters() if name.endswith(endings)]


OtherReadings = Callable[[ModelReading], Iterator[ModelReading | None]]


@dataclass(frozen=True)
class Convention:
    """A choice that a file says or leaves open, and the other ways to read it."""

    name: str
    alternatives: OtherReadings
    describe: Callable[[ModelConfig], str] | None = None
    """Returns the choice of a config in words, where it is the config that differs."""
    needs_distance: bool = False
    """Whether near tokens may show nothing of it, so that far ones are waited for."""
    key: str = ""
    """The keys of config.json that say it, where some do."""
    measure: Callable[[ModelConfig], float] | None = None
    """The number that is chosen, where a reading with a number beyond that of a worse one is worse, too."""

    def list_alternatives(self, given: ModelReading) -> list[ModelReading]:
        return [other for other in self.alternatives(given) if other is not None]

    def is_beyond(self, other: ModelReading, worse: ModelReading, given: ModelReading) -> bool:
        """Returns whether an alternative's number is farther from the given one than that of a worse one, on
        the same side."""
        if self.measure is None:
            return False
        number, limit, own = (self.measure(reading.config) for reading in (other, worse, given))
        return number >= limit > own or number <= limit < own

    def compare(self, given: ModelReading, other: ModelReading) -> str:
        """Returns what an alternative has in place of what: "25,000 for 100,000"."""
        if self.describe is None:
            return other.value
        return f"{self.describe(other.config)} for {self.describe(given.config)}"


# ---- positions


def _rope(given: ModelReading) -> Rope | None:
    positions = given.config.positions
    return positions if isinstance(positions, Rope) else None


def swap_layout(given: ModelReading) -> Iterator[ModelReading | None]:
    if rope := _rope(given):
        other = {"halves": "pairs", "pairs": "halves"}[rope.layout]
        yield given.change(positions=replace(rope, layout=other))


def reverse_rotation(given: ModelReading) -> Iterator[ModelReading | None]:
    """Yields angles of the other sign: R(−θ) = S R(θ) S, where S negates the second channel of each pair, and
    S falls out of a score but for its signs in the queries and keys."""
    if not (rope := _rope(given)) or "mean" in given.config.qk_norm.values:
        return
    signs = np.ones(given.config.d_head)
    if rope.layout == "halves":
        signs[len(signs) // 2 :] = -1
    else:
        signs[1::2] = -1
    names = given.find_weights("q_proj.weight", "k_proj.weight", "q_proj.bias", "k_proj.bias")
    yield given.change("the other way", {name: _scale_channels(given.weight(name), signs) for name in names})


def _scale_channels(weight: Any, factors: Any) -> Any:
    """Returns rows [H D …] scaled by one factor for each channel of a head."""
    heads = weight.reshape(-1, len(factors), *weight.shape[1:])
    return (heads * factors.reshape(-1, *[1] * (weight.ndim - 1))).reshape(weight.shape).astype(weight.dtype)


BASE_FACTORS = (4.0, 0.25, 10.0, 0.1, 2.0, 0.5)
"""The nearest first that a text of a few thousand tokens decides; what is beyond a worse one is worse."""


def change_base(given: ModelReading) -> Iterator[ModelReading | None]:
    if rope := _rope(given):
        for factor in BASE_FACTORS:
            yield given.change(positions=replace(rope, base=float(f"{rope.base * factor:.6g}")))


def _base_of(config: ModelConfig) -> float:
    return float(getattr(config.positions, "base", 0.0))


SCALINGS: tuple[Callable[[Rope, int], Rope], ...] = (
    lambda rope, context: RopeLinear(rope.base, rope.layout, 4.0),
    lambda rope, context: RopeYarn(rope.base, rope.layout, factor=4.0, original_context=max(1, context // 4)),
    lambda rope, context: RopeLlama3(
        rope.base, rope.layout, factor=4.0, original_context=max(1, context // 4)
    ),
)


def change_scaling(given: ModelReading) -> Iterator[ModelReading | None]:
    """Yields RoPE without its scaling, with twice or half its factor; of a plain one, with each scaling."""
    if not (rope := _rope(given)):
        return
    if rope.kind == "rope":
        others = [scale(rope, given.config.context_length) for scale in SCALINGS]
    else:
        factor = getattr(rope, "factor", 1.0)
        others = [Rope(rope.base, rope.layout)]
        others += [replace(rope, factor=new) for new in (2 * factor, factor / 2) if new >= 1]  # type: ignore[call-arg]
    for other in others:
        yield given.change(positions=other)


def _describe_scaling(config: ModelConfig) -> str:
    factor = getattr(config.positions, "factor", None)
    return config.positions.kind + (f" of {factor:g}" if factor else "")


def shift_learned_positions(given: ModelReading) -> Iterator[ModelReading | None]:
    if "positions.weight" in given.config.parameters():
        rows = given.weight("positions.weight")
        for shift in (1, -1, 2):
            yield given.change(f"from row {shift}", {"positions.weight": np.roll(rows, -shift, axis=0)})


def omit_position_bias(given: ModelReading) -> Iterator[ModelReading | None]:
    if given.config.positions.has_bias:
        yield given.change(positions=NoPositions())


# ---- what a query attends to


def change_window(given: ModelReading) -> Iterator[ModelReading | None]:
    """Yields no window, one twice or half as large, one key more or fewer; for the plain causal mask, one
    of half of the context."""
    mask, context = given.config.mask, given.config.context_length
    if isinstance(mask, Window):
        yield given.change(mask=Causal())
        sizes = [2 * mask.size, mask.size // 2, mask.size + 1, mask.size - 1]
    elif mask.causal:
        sizes = [context // 2]
    else:
        if not mask.bidirectional_prefix:
            yield given.change(mask=Causal())
        return
    for size in dict.fromkeys(sizes):
        if 0 < size < context:
            yield given.change(mask=Window(size))


def _describe_mask(config: ModelConfig) -> str:
    size = getattr(config.mask, "size", None)
    return config.mask.kind + (f" of {size:,}" if size else "")


def scale_scores(given: ModelReading) -> Iterator[ModelReading | None]:
    """Yields one factor too many in the scores: √D, where they are not divided, 1/√D and √(D/C)."""
    config = given.config
    if not isinstance(config.attention, SoftmaxAttentionConfig):
        return
    last = "q_norm" if not config.qk_norm.is_none else "q_proj"
    names = given.find_weights(f"attn.{last}.weight", f"attn.{last}.bias")
    width = config.d_head
    for value, scale in (
        ("not divided by √D", width**0.5),
        ("divided by D", width**-0.5),
        ("divided by √C", (width / config.d_model) ** 0.5),
    ):
        if scale != 1.0:
            yield given.change(value, {name: given.weight(name) * np.float32(scale) for name in names})


def interleave_key_heads(given: ModelReading) -> Iterator[ModelReading | None]:
    """Yields query heads in another order, by which head h reads key head h % K and not h // (H / K)."""
    config = given.config
    heads, kv_heads, width = config.n_head, config.n_kv_head, config.d_head
    if kv_heads in (1, heads) or config.positions.has_bias or config.output.is_none:
        return
    order = np.array([head for key in range(kv_heads) for head in range(key, heads, kv_heads)])
    changed: dict[str, Any] = {}
    for name in given.find_weights("attn.q_proj.weight", "attn.q_proj.bias"):
        weight = given.weight(name)
        changed[name] = weight.reshape(heads, width, *weight.shape[1:])[order].reshape(weight.shape)
    for name in given.find_weights("attn.o_proj.weight"):
        weight = given.weight(name)
        changed[name] = weight.reshape(len(weight), heads, width)[:, order].reshape(weight.shape)
    yield given.change("query head h on key head h % K", changed)


# ---- norms, caps, the MLP


def swap_norm(given: ModelReading) -> Iterator[ModelReading | None]:
    norm = given.config.norm
    if isinstance(norm, RmsNormConfig):
        yield given.change(norm=LayerNormConfig(norm.eps))
    elif isinstance(norm, LayerNormConfig):
        yield given.change(norm=RmsNormConfig(norm.eps))


EPS_FACTORS = (100.0, 0.01)


def change_eps(given: ModelReading) -> Iterator[ModelReading | None]:
    norms = {name: getattr(given.config, name) for name in ("norm", "embed_norm", "qk_norm")}
    owned = {name: norm for name, norm in norms.items() if hasattr(norm, "eps")}
    for factor in EPS_FACTORS if owned else ():
        others = {name: replace(norm, eps=float(f"{norm.eps * factor:.6g}")) for name, norm in owned.items()}
        yield given.change(**others)


def _describe_eps(config: ModelConfig) -> str:
    norms = (config.norm, config.embed_norm, config.qk_norm)
    return next((f"{norm.eps:g}" for norm in norms if hasattr(norm, "eps")), "")


def add_one_to_gains(given: ModelReading) -> Iterator[ModelReading | None]:
    if names := given.find_weights("norm.weight"):
        yield given.change("1 + γ", {name: given.weight(name) + np.float32(1) for name in names})


def omit_qk_norm(given: ModelReading) -> Iterator[ModelReading | None]:
    if not given.config.qk_norm.is_none:
        yield given.change("omitted", qk_norm=NoNorm())


def omit_embed_norm(given: ModelReading) -> Iterator[ModelReading | None]:
    if not given.config.embed_norm.is_none:
        yield given.change("omitted", embed_norm=NoNorm())


def omit_cap(name: str) -> OtherReadings:
    def alternatives(given: ModelReading) -> Iterator[ModelReading | None]:
        if not getattr(given.config, name).is_none:
            choices: dict[str, Any] = {name: NoCap()}
            yield given.change("omitted", **choices)

    return alternatives


PLAIN = (Gelu(), GeluTanh(), Silu(), Relu(), ReluSquared())
GATED = (Swiglu(), Geglu(), GegluTanh())


def change_activation(given: ModelReading) -> Iterator[ModelReading | None]:
    mlp = given.config.mlp
    for other in GATED if isinstance(mlp, GatedMlpConfig) else PLAIN:
        if not mlp.is_none and other.kind != mlp.kind:
            yield given.change(mlp=other)


def swap_gate_and_up(given: ModelReading) -> Iterator[ModelReading | None]:
    if not isinstance(given.config.mlp, GatedMlpConfig):
        return
    changed: dict[str, Any] = {}
    for name in given.find_weights("gate_proj.weight", "gate_proj.bias"):
        other = name.replace("gate_proj", "up_proj")
        changed |= {name: given.weights[other], other: given.weights[name]}
    yield given.change("exchanged", changed)


# ---- products


def transpose_output(given: ModelReading) -> Iterator[ModelReading | None]:
    config = given.config
    if not config.output.is_none and config.n_head * config.d_head == config.d_model > 1:
        names = given.find_weights("attn.o_proj.weight")
        yield given.change("transposed", {name: given.weight(name).T for name in names})


def omit_biases(given: ModelReading) -> Iterator[ModelReading | None]:
    names = [name for name in given.find_weights(".bias") if given.weight(name).any()]
    if names:
        yield given.change("omitted", {name: np.zeros_like(given.weight(name)) for name in names})


def swap_tying(given: ModelReading) -> Iterator[ModelReading | None]:
    """Yields tied weights read as untied, where a loader initializes the missing matrix, and the reverse."""
    if isinstance(given.config.unembedding, LinearUnembedding):
        yield given.change("tied", unembedding=TiedUnembedding())
    else:
        shape = given.config.parameters()["embed.weight"]
        drawn = np.random.default_rng(0).standard_normal(shape, np.float32) * np.float32(0.02)
        yield given.change(
            "separate, initialized", {"unembed.weight": drawn}, unembedding=LinearUnembedding()
        )


def scale_embedding(given: ModelReading) -> Iterator[ModelReading | None]:
    embedding = given.weight("embed.weight")
    scaled = embedding * np.float32(given.config.d_model**0.5)
    own = given.weights.get("unembed.weight", given.weights["embed.weight"])
    changed = {"embed.weight": scaled, "unembed.weight": own}
    yield given.change("multiplied by √C", changed, unembedding=LinearUnembedding())


CONVENTIONS = (
    Convention("RoPE layout", swap_layout, lambda config: getattr(config.positions, "layout", "")),
    Convention("unembedding", swap_tying, key="tie_word_embeddings"),
    Convention("norm", swap_norm, lambda config: config.norm.kind),
    Convention("norm gain", add_one_to_gains),
    Convention("gate and up", swap_gate_and_up),
    Convention("query heads", interleave_key_heads),
    Convention("output projection", transpose_output),
    Convention("RoPE rotation", reverse_rotation),
    Convention("learned positions", shift_learned_positions),
    Convention("position bias", omit_position_bias, lambda config: config.positions.kind),
    Convention("QK-norm", omit_qk_norm),
    Convention("embedding norm", omit_embed_norm),
    Convention("embedding", scale_embedding),
    Convention("biases", omit_biases, key="attention_bias, mlp_bias"),
    Convention("logit soft-cap", omit_cap("logit_cap"), key="final_logit_softcapping"),
    Convention("score soft-cap", omit_cap("score_cap"), key="attn_logit_softcapping"),
    Convention("activation", change_activation, lambda config: config.mlp.kind, key="hidden_act"),
    Convention("scores", scale_scores),
    Convention(
        "RoPE base",
        change_base,
        lambda config: f"{_base_of(config):,.6g}",
        key="rope_theta",
        measure=_base_of,
    ),
    Convention("RoPE scaling", change_scaling, _describe_scaling, needs_distance=True, key="rope_scaling"),
    Convention("window", change_window, _describe_mask, needs_distance=True, key="sliding_window"),
    Convention("norm eps", change_eps, _describe_eps, key="rms_norm_eps or layer_norm_epsilon"),
)
"""Each choice with its alternatives, in the order of what a wrong one costs."""

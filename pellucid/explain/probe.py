"""What a wrong convention would cost: the loss on a text as given, and with one choice changed.

Every alternative is a mistake that loads without complaint. Most are a changed config; what no config can
say is done to the weights instead (leaving out 1/√D is W_Q · √D), so the specification runs it as it is.
"""

import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from pellucid.config import ModelConfig
from pellucid.errors import ConfigError, TokenError
from pellucid.parts import Part
from pellucid.parts.caps.none import NoCap
from pellucid.parts.masks import Mask
from pellucid.parts.masks.causal import Causal
from pellucid.parts.masks.none import NoMask
from pellucid.parts.mlps import Mlp
from pellucid.parts.norms.layer_norm import LayerNorm
from pellucid.parts.norms.none import NoNorm
from pellucid.parts.norms.rms_norm import RmsNorm
from pellucid.parts.positions.learned import Learned
from pellucid.parts.positions.none import NoPositions
from pellucid.parts.positions.rope import Rope
from pellucid.parts.unembeddings.linear import LinearUnembedding
from pellucid.parts.unembeddings.tied import TiedUnembedding
from pellucid.reference.op import Array
from pellucid.reference.ops.cross_entropy import IGNORED
from pellucid.reference.training import forward
from pellucid.text.tokenizer import Tokenizer

SAMPLE = (
    "The harbour lay quiet in the early morning. A small boat came in from the sea, and an old man tied it "
    "to the wall. He had caught three fish, which he gave to the children who were waiting for him."
)
MOST_TOKENS = 64
UNNOTICED = 0.05
"""A loss that differs by less is a perplexity that differs by a twentieth: nobody hears it in the text."""


@dataclass(frozen=True)
class Case:
    """A model about to read a text; where `add_bos` holds, `bos` stands before it, uncounted.

    `note` says what is wrong with it: "pairs for halves".
    """

    config: ModelConfig
    weights: Mapping[str, Array]
    ids: tuple[int, ...]
    bos: int | None = None
    add_bos: bool = False
    note: str = ""

    def loss(self) -> float:
        """The mean surprise over the text's tokens but the first, whatever stands before it."""
        before = [self.bos] if self.add_bos and self.bos is not None else []
        ids, targets = [*before, *self.ids[:-1]], [IGNORED] * len(before) + list(self.ids[1:])
        with np.errstate(all="ignore"):  # a wrong convention may overflow, and its loss says so
            return float(forward(self.config, self.weights, [ids], [targets])["loss"])


@dataclass(frozen=True)
class Finding:
    """An alternative with its loss, or None where it does not apply to the model."""

    alternative: str
    loss: float | None


@dataclass(frozen=True)
class Probe:
    """The loss as given, and with each alternative that applies, the most harmful first."""

    loss: float
    tokens: int
    findings: tuple[Finding, ...]
    not_applied: tuple[str, ...]


def case(
    config: ModelConfig,
    weights: Mapping[str, Array],
    tokenizer: Tokenizer,
    add_bos: bool = False,
    text: str = SAMPLE,
) -> Case:
    """A text for a model to read, and its weights in float64, held once for every alternative to share."""
    ids = tokenizer.encode(text)[: min(MOST_TOKENS, config.context_length)]
    if len(ids) < 2:
        raise TokenError("a loss needs a text of at least two tokens.")
    bos = None if tokenizer.special.bos is None else tokenizer.id_of(tokenizer.special.bos)
    held = {name: np.asarray(weights[name], dtype=np.float64) for name in config.parameters()}
    return Case(config, held, tuple(ids), bos, add_bos)


def findings(given: Case) -> Iterator[Finding]:
    """Run every alternative, one after the other."""
    for name, change in ALTERNATIVES.items():
        if changed := change(given):
            yield Finding(f"{name}: {changed.note}" if changed.note else name, changed.loss())
        else:
            yield Finding(name, None)


def probe(given: Case, seen: Callable[[Finding], None] = lambda _: None) -> Probe:
    """Run them all, and sort them by damage; `seen` is told of each as it comes."""
    loss, found = given.loss(), []
    for finding in findings(given):
        seen(finding)
        found.append(finding)
    applied = [f for f in found if f.loss is not None]
    applied.sort(key=lambda f: -abs(_damage(loss, f)))
    return Probe(
        loss, len(given.ids) - 1, tuple(applied), tuple(f.alternative for f in found if f.loss is None)
    )


def _damage(loss: float, finding: Finding) -> float:
    assert finding.loss is not None
    return finding.loss - loss if np.isfinite(finding.loss) else np.inf


def remark(loss: float, finding: Finding) -> str:
    damage = _damage(loss, finding)
    if abs(damage) < 1e-12:
        return "no difference at all"
    if abs(damage) < UNNOTICED:
        return "would not be noticed by reading text"
    if damage < 0:
        return "lower, and wrong: too good to be true"
    return "a worse model, it seems" if damage < 1 else "breaks the text"


def lines(done: Probe, width: int = 110) -> Iterator[str]:
    first = max(len(f.alternative) for f in done.findings) + 2
    yield f"loss over {done.tokens} tokens, in float64:"
    yield f"{'as given':<{first}}{done.loss:>9.4f}"
    for finding in done.findings:
        assert finding.loss is not None
        damage = finding.loss - done.loss
        told = f"{damage:>+12.2e}" if abs(damage) < 1e-4 else f"{damage:>+12.4f}"
        yield f"{finding.alternative:<{first}}{finding.loss:>9.4f}{told}  {remark(done.loss, finding)}"
    if done.not_applied:
        yield from textwrap.wrap(f"does not apply to this model: {'; '.join(done.not_applied)}.", width)


# ---- the alternatives

Change = Callable[[Case], Case | None]


def _config(given: Case, note: str = "", **change: Any) -> Case | None:
    """The same with another choice, where it goes with the others."""
    try:
        return replace(given, config=replace(given.config, **change), note=note)
    except ConfigError:
        return None


def _weights(given: Case, change: Callable[[str, Array], Array | None]) -> Case | None:
    """The same model where some weights are others; `change` gives None for a weight that stays."""
    made = {name: new for name, old in given.weights.items() if (new := change(name, old)) is not None}
    return replace(given, weights={**given.weights, **made}) if made else None


def rope_layout(given: Case) -> Case | None:
    rope = given.config.positions
    if not isinstance(rope, Rope):
        return None
    layout = {"halves": "pairs", "pairs": "halves"}[rope.layout]
    return _config(given, f"{layout} for {rope.layout}", positions=replace(rope, layout=layout))


def rope_base(factor: float) -> Change:
    def change(given: Case) -> Case | None:
        rope = given.config.positions
        if not isinstance(rope, Rope):
            return None
        base = rope.base * factor
        return _config(given, f"{base:,.0f} for {rope.base:,.0f}", positions=replace(rope, base=base))

    return change


def rope_backwards(given: Case) -> Case | None:
    """Turning the other way is turning the mirror image: the second channel of each pair negated."""
    rope, width = given.config.positions, given.config.d_head
    if not isinstance(rope, Rope):
        return None
    second = np.arange(width) >= width // 2 if rope.layout == "halves" else np.arange(width) % 2 == 1
    sign = np.where(second, -1.0, 1.0)

    def change(name: str, old: Array) -> Array | None:
        if ".q_proj." not in name and ".k_proj." not in name:
            return None
        signs = np.tile(sign, len(old) // width).reshape(-1, *(1,) * (old.ndim - 1))
        return np.asarray(old * signs)

    return _weights(given, change)


def positions_from_one(given: Case) -> Case | None:
    if not isinstance(given.config.positions, Learned):
        return None  # what turns by position knows only distances
    return _weights(given, lambda name, old: np.roll(old, -1, axis=0) if name == "positions.weight" else None)


@dataclass(frozen=True)
class OneAhead(Mask):
    def allowed(self, queries: Any, keys: Any) -> Any:
        return keys[..., None, :] <= queries[..., :, None] + 1


def mask_one_ahead(given: Case) -> Case | None:
    return _config(given, mask=OneAhead()) if given.config.mask.causal else None


def no_mask(given: Case) -> Case | None:
    return None if isinstance(given.config.mask, NoMask) else _config(given, mask=NoMask())


def mask_plain(given: Case) -> Case | None:
    mask = given.config.mask
    return None if mask.causal or mask.together else _config(given, f"causal for {mask.kind}", mask=Causal())


def rope_plain(given: Case) -> Case | None:
    rope = given.config.positions
    if not isinstance(rope, Rope) or rope.kind == "rope":
        return None
    return _config(given, f"rope for {rope.kind}", positions=Rope(rope.base, rope.layout))


def no_bias_of_distance(given: Case) -> Case | None:
    positions = given.config.positions
    return _without(given, "positions", NoPositions()) if positions.biased() else None


def left_out(field: str, nothing: Part) -> Change:
    """The model without one of its optional parts, whose weights are left aside."""

    def change(given: Case) -> Case | None:
        there = getattr(given.config, field).kind != "none"
        return _without(given, field, nothing) if there else None

    return change


def _without(given: Case, field: str, nothing: Part) -> Case:
    config = replace(given.config, **{field: nothing})  # type: ignore[arg-type]
    return replace(given, config=config, weights={name: given.weights[name] for name in config.parameters()})


def norm_kind(given: Case) -> Case | None:
    norm = given.config.norm
    if isinstance(norm, RmsNorm):
        return _config(given, "LayerNorm for RMSNorm", norm=LayerNorm(norm.eps))
    if isinstance(norm, LayerNorm):
        return _config(given, "RMSNorm for LayerNorm", norm=RmsNorm(norm.eps))
    return None


def norm_eps(given: Case) -> Case | None:
    norm = given.config.norm
    if not isinstance(norm, RmsNorm | LayerNorm):
        return None
    eps = 1e-5 if norm.eps == 1e-6 else 1e-6
    return _config(given, f"{eps:g} for {norm.eps:g}", norm=replace(norm, eps=eps))


def norm_gain(given: Case) -> Case | None:
    return _weights(given, lambda name, old: old + 1.0 if name.endswith("norm.weight") else None)


NEAR = {"silu": "gelu", "gelu": "gelu_tanh", "gelu_tanh": "gelu", "relu": "gelu", "relu_squared": "relu"}
"""The curve that each is most easily taken for."""


def activation(given: Case) -> Case | None:
    mlp = given.config.mlp
    if not mlp.values or mlp.activation not in NEAR:
        return None
    near = NEAR[mlp.activation]
    return _config(given, f"{near} for {mlp.activation}", mlp=_with_curve(mlp, near))


def _with_curve(mlp: Mlp, curve: str) -> Mlp:
    """The same feed-forward with another activation, whether or not there is a part of that name."""
    changed: type[Mlp] = type("Changed", (type(mlp),), {"activation": curve})
    return changed(**asdict(mlp))


def gate_and_up_swapped(given: Case) -> Case | None:
    other = {".gate_proj.": ".up_proj.", ".up_proj.": ".gate_proj."}
    if given.config.mlp.form != "gated":
        return None
    return _weights(
        given,
        lambda name, _: next(
            (given.weights[name.replace(a, b)] for a, b in other.items() if a in name), None
        ),
    )


def scale(power: float) -> Change:
    """Scores scaled by D^power more than they should be."""

    def change(given: Case) -> Case | None:
        factor = given.config.d_head**power
        return _weights(given, lambda name, old: old * factor if ".q_proj." in name else None)

    return change


def heads_in_turn(given: Case) -> Case | None:
    """Query head h on key head h % K: the query heads in another order, before and after."""
    heads, shared, width = given.config.n_head, given.config.n_kv_head, given.config.d_head
    if shared in (1, heads):
        return None
    order = np.arange(heads).reshape(heads // shared, shared).T.reshape(-1)
    channels = (order[:, None] * width + np.arange(width)).reshape(-1)

    def change(name: str, old: Array) -> Array | None:
        if ".q_proj." in name:
            return np.ascontiguousarray(old[channels])
        return np.ascontiguousarray(old[:, channels]) if name.endswith(".o_proj.weight") else None

    return _weights(given, change)


def output_transposed(given: Case) -> Case | None:
    def change(name: str, old: Array) -> Array | None:
        square = name.endswith(".o_proj.weight") and old.shape[0] == old.shape[1]
        return np.ascontiguousarray(old.T) if square else None

    return _weights(given, change)


def no_biases(given: Case) -> Case | None:
    if not given.config.biases:
        return None
    config = replace(given.config, biases=())
    return replace(given, config=config, weights={name: given.weights[name] for name in config.parameters()})


def unembedding(given: Case) -> Case | None:
    """Tied read as untied, where a loader makes up the matrix that it misses; untied read as tied."""
    tied = isinstance(given.config.unembedding, TiedUnembedding)
    config = replace(given.config, unembedding=LinearUnembedding() if tied else TiedUnembedding())
    weights = {name: given.weights[name] for name in config.parameters() if name in given.weights}
    if tied:
        shape = given.weights["embed.weight"].shape
        made = np.random.default_rng(0).standard_normal(shape, np.float32)
        weights["unembed.weight"] = np.multiply(made, 0.02, dtype=np.float64)
    return replace(
        given, config=config, weights=weights, note="untied for tied" if tied else "tied for untied"
    )


def embedding_scaled(given: Case) -> Case | None:
    """√C on the way in only: a tied matrix has to be parted for it."""
    rows, config = given.weights["embed.weight"], given.config
    weights = {**given.weights, "embed.weight": rows * config.d_model**0.5}
    if isinstance(config.unembedding, TiedUnembedding):
        config, weights["unembed.weight"] = replace(config, unembedding=LinearUnembedding()), rows
    return replace(given, config=config, weights=weights)


def bos(given: Case) -> Case | None:
    if given.bos is None or len(given.ids) >= given.config.context_length:
        return None
    return replace(
        given, add_bos=not given.add_bos, note="left out" if given.add_bos else "put before the text"
    )


ALTERNATIVES: dict[str, Change] = {
    "RoPE layout": rope_layout,
    "RoPE base smaller": rope_base(0.1),
    "RoPE base larger": rope_base(10.0),
    "RoPE turned the other way": rope_backwards,
    "learned positions counted from 1": positions_from_one,
    "mask one token ahead": mask_one_ahead,
    "no mask": no_mask,
    "mask's pattern left out": mask_plain,
    "RoPE's scaling left out": rope_plain,
    "bias of distances left out": no_bias_of_distance,
    "norm of the embedding left out": left_out("embed_norm", NoNorm()),
    "norms of queries and keys left out": left_out("qk_norm", NoNorm()),
    "soft cap of scores left out": left_out("score_cap", NoCap()),
    "soft cap of logits left out": left_out("logit_cap", NoCap()),
    "norm": norm_kind,
    "norm eps": norm_eps,
    "norm gain read as 1 + γ": norm_gain,
    "activation": activation,
    "gate and up swapped": gate_and_up_swapped,
    "scores without 1/√D": scale(0.5),
    "scores with 1/D": scale(-0.5),
    "query heads dealt out in turn, h % K": heads_in_turn,
    "output matrix transposed": output_transposed,
    "biases left out": no_biases,
    "unembedding": unembedding,
    "embedding multiplied by √C": embedding_scaled,
    "bos": bos,
}

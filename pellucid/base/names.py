"""The glossary as data: the name, axes, symbol and meaning of every value.

Both engines use these names and no others. `L` is the index of a layer. Further names are built by rule:

    d.X           the gradient of the loss with respect to X
    d.X.via.Y     the part of it that came through Y, where X has several users
    d.X.clipped   the gradient after clipping by the global norm
    X.keep        the dropout mask of X: 0, or 1 / (1 − rate)
    X.dropped     X after dropout
    X.computed    X as its formula gives it, where cells of X were edited; d.X.backpropagated of a gradient
    X.lora_a  X.lora_b   the LoRA factors of the projection X: X.weight + s · lora_b lora_a
    X.integers  X.scales  X.minimums   of a quantized weight X: scales · integers (+ minimums)
    X.m@k  X.v@k  a parameter's moments after k updates
    X@k           a parameter after k updates, or a value in the forward pass after k updates
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

HEAD_OUT = "head_out"
"""The last part of `blocks.L.attn.head_out`, which is computed only where it is named."""
IGNORE_INDEX = -100
"""The target of a position that the loss omits, as in PyTorch's `cross_entropy`."""

LETTERS = {
    "b": "sequence of the batch",
    "t": "query position",
    "s": "key position",
    "p": "position",
    "c": "channel of the residual stream",
    "h": "query head",
    "k": "key/value head; query head h = kg is h = k·G + g and attends to k",
    "d": "channel of one head",
    "f": "hidden channel of the MLP",
    "v": "token of the vocabulary",
    "out": "output channel; of a projection into heads, out = hd is out = h·D + d",
    "in": "input channel",
    "pair": "pair of channels that RoPE rotates together",
    "r": "feature of linear attention",
    "n": "bucket of the relative position bias",
    "rank": "rank of a LoRA adapter",
    "group": "group of inputs of a quantized weight that share a scale",
    "1": "axis of length 1",
}


@dataclass(frozen=True)
class Name:
    """One row of the glossary. The meaning is the standard term, and after a colon at most one clause.

    `engines` is "both" where the PyTorch engine emits the value too; agreement is over those.
    A `transposed` symbol is the matrix of the formulas, x W, while the parameter is stored (out, in).
    """

    name: str
    axes: tuple[str, ...]
    symbol: str
    meaning: str
    engines: str = "both"
    invariant: str = ""
    transposed: bool = False

    @property
    def term(self) -> str:
        """The meaning without its clause."""
        return self.meaning.partition(":")[0]

    @property
    def is_parameter(self) -> bool:
        return self.name.endswith((".weight", ".bias"))


def _row(name: str, axes: str, symbol: str, meaning: str, **more: str | bool) -> Name:
    return Name(name, tuple(axes.split()), symbol, meaning, **more)  # type: ignore[arg-type]


def _linear(name: str, symbol: str, bias: str, term: str, clause: str) -> list[Name]:
    return [
        _row(f"{name}.weight", "out in", symbol, f"{term} weight: {clause}", transposed=True),
        _row(f"{name}.bias", "out", bias, f"{term} bias"),
    ]


def _norm(name: str, term: str, axes: str = "b t c", x: str = "X") -> list[Name]:
    rows, channel = axes[:-1], axes[-1]
    return [
        _row(f"{name}.weight", channel, "γ", f"{term} weight: the gain of each channel"),
        _row(f"{name}.bias", channel, "β", f"{term} bias: the shift of each channel"),
        _row(f"{name}.mean", f"{rows}1", "μ", f"{term} mean over the channels"),
        _row(f"{name}.centered", axes, f"{x}̄", f"{term} centered input: the mean subtracted"),
        _row(f"{name}.rstd", f"{rows}1", "r", f"{term} rstd: 1 / √(mean square over the channels + eps)"),
        _row(f"{name}.normed", axes, f"{x}̂", f"{term} normalized input: before weight and bias"),
        _row(f"{name}.out", axes, "Y", f"{term} output"),
    ]


PARAMETERS_AND_VALUES: tuple[Name, ...] = (
    # inputs
    _row("ids", "b t", "id", "token ids", engines="reference"),
    _row("targets", "b t", "y", "target ids: −100 where the loss omits the position", engines="reference"),
    _row("position_ids", "t", "pos", "position ids", engines="reference"),
    _row("angles", "t pair", "θ", "RoPE angles: position × frequency of each pair of channels"),
    _row("segments", "b t", "seg", "segment ids: the document of each token of a row", engines="reference"),
    _row("same_segment", "b 1 t s", "same", "segment mask: 1 in one document, else 0", engines="reference"),
    _row(
        "position_mask", "b 1 t s", "mask_pos", "attention mask before the segment mask", engines="reference"
    ),
    _row("head_channels", "out in", "I", "channels of each head, where there is no W_O", engines="reference"),
    _row("directions", "r d", "Ω", "random projection of the feature map", engines="reference"),
    _row("mask", "b 1 t s", "mask", "attention mask: 1 where a query may attend to a key, else 0"),
    # embedding
    _row("embed.weight", "v c", "E", "token embedding weight: one row for each token"),
    _row("positions.weight", "p c", "W_pos", "position embedding weight: one row for each position"),
    _row("embedded", "b t c", "X_E", "token embeddings"),
    _row("position_rows", "t c", "X_pos", "position embeddings"),
    _row("positioned", "b t c", "X_0", "input embeddings: token plus position embeddings"),
    *_norm("embed_norm", "embedding norm"),
    _row("position_bias.weight", "n h", "W_bias", "relative position bias weight: one row for each bucket"),
    _row("bias_ids", "t s", "row", "relative position bucket of each query and key", engines="reference"),
    _row("bias_rows", "t s h", "b_rel", "relative position bias as looked up: heads last"),
    _row("position_bias", "h t s", "B", "position bias: what is added to the attention scores"),
    # one block
    _row("blocks.L.resid_pre", "b t c", "X", "residual stream before the block"),
    *_norm("blocks.L.attn_norm", "attention pre-norm"),
    *_norm("blocks.L.attn_out_norm", "attention output norm"),
    *_norm("blocks.L.attn_post_norm", "attention post-norm"),
    *_linear("blocks.L.attn.q_proj", "W_Q", "b_Q", "query projection", "residual stream to queries"),
    *_linear("blocks.L.attn.k_proj", "W_K", "b_K", "key projection", "residual stream to keys"),
    *_linear("blocks.L.attn.v_proj", "W_V", "b_V", "value projection", "residual stream to values"),
    *_linear("blocks.L.attn.o_proj", "W_O", "b_O", "output projection", "heads to residual stream"),
    _row("blocks.L.attn.q", "b h t d", "Q", "queries"),
    _row("blocks.L.attn.k", "b k s d", "K", "keys"),
    _row("blocks.L.attn.v", "b k s d", "V", "values"),
    *_norm("blocks.L.attn.q_norm", "query norm", "b h t d", "Q"),
    *_norm("blocks.L.attn.k_norm", "key norm", "b k s d", "K"),
    _row("blocks.L.attn.q_normed", "b h t d", "Q_N", "normalized queries"),
    _row("blocks.L.attn.k_normed", "b k s d", "K_N", "normalized keys"),
    _row("blocks.L.attn.q_rot", "b h t d", "Q'", "queries after RoPE", invariant="keeps norms"),
    _row("blocks.L.attn.k_rot", "b k s d", "K'", "keys after RoPE", invariant="keeps norms"),
    _row("blocks.L.attn.past_k", "b k p d", "K_past", "cached keys: after RoPE, where the model has it"),
    _row("blocks.L.attn.past_v", "b k p d", "V_past", "cached values"),
    _row("blocks.L.attn.k_all", "b k s d", "K_all", "cached and new keys"),
    _row("blocks.L.attn.v_all", "b k s d", "V_all", "cached and new values"),
    _row("blocks.L.attn.scores", "b h t s", "S", "attention scores: query · key / √D"),
    _row("blocks.L.attn.capped", "b h t s", "S_cap", "soft-capped attention scores: c · tanh(score / c)"),
    _row("blocks.L.attn.biased", "b h t s", "S_B", "attention scores plus position bias"),
    _row("blocks.L.attn.masked", "b h t s", "M", "masked attention scores: −∞ where the mask is 0"),
    _row("blocks.L.attn.q_feat", "b h t r", "φ(Q)", "query features: φ of each query"),
    _row("blocks.L.attn.k_feat", "b k s r", "φ(K)", "key features: φ of each key"),
    _row("blocks.L.attn.kernel", "b h t s", "κ", "attention kernel: φ(query) · φ(key), 0 where masked"),
    _row(
        "blocks.L.attn.pattern",
        "b h t s",
        "P",
        "attention pattern: the share that each query gives to each key",
        invariant="rows sum to 1",
    ),
    _row("blocks.L.attn.z", "b h t d", "Z", "head outputs: values weighted by the attention pattern"),
    _row(
        "blocks.L.attn.head_out",
        "b h t c",
        "O_h",
        "attention output of each head: z times its rows of W_O; their sum, with the bias, is attn_out",
    ),
    _row("blocks.L.attn_out", "b t c", "O", "attention output: after the output projection"),
    _row("blocks.L.attn_sum", "b t c", "X_a", "residual stream plus attention output, before the post-norm"),
    _row("blocks.L.resid_mid", "b t c", "X_mid", "residual stream after attention"),
    *_norm("blocks.L.mlp_norm", "MLP pre-norm"),
    *_norm("blocks.L.mlp_out_norm", "MLP output norm"),
    *_norm("blocks.L.mlp_post_norm", "MLP post-norm"),
    *_linear("blocks.L.mlp.gate_proj", "W_G", "b_G", "gate projection", "residual stream to gates"),
    *_linear("blocks.L.mlp.up_proj", "W_1", "b_1", "up-projection", "residual stream to hidden channels"),
    *_linear("blocks.L.mlp.down_proj", "W_2", "b_2", "down-projection", "hidden channels to residual stream"),
    _row("blocks.L.mlp.gate", "b t f", "U_G", "gate pre-activations"),
    _row(
        "blocks.L.mlp.up",
        "b t f",
        "U",
        "up-projection output: the pre-activations where there is no gate projection",
    ),
    _row("blocks.L.mlp.act", "b t f", "A", "activations"),
    _row("blocks.L.mlp.hidden", "b t f", "U_H", "hidden activations: the input of the down-projection"),
    _row("blocks.L.mlp_out", "b t c", "O_F", "MLP output: after the down-projection"),
    _row("blocks.L.mlp_sum", "b t c", "X_f", "residual stream plus MLP output, before the post-norm"),
    _row("blocks.L.resid_post", "b t c", "X_post", "residual stream after the block"),
    # logits and loss
    *_norm("final_norm", "final norm"),
    _row("unembed.weight", "v c", "W_U", "unembedding weight: one row for each token", transposed=True),
    _row("unembed.bias", "v", "b_U", "unembedding bias"),
    _row("unembedded", "b t v", "ℓ_0", "logits before the soft cap"),
    _row("logits", "b t v", "ℓ", "logits: one score for each possible next token"),
    _row("probs", "b t v", "p", "next-token probabilities: softmax of the logits", invariant="rows sum to 1"),
    _row("lse", "b t", "lse", "log-sum-exp of the logits: ln p = logit − lse"),
    _row("nll", "b t", "nll", "negative log-likelihood of the target: −ln p, 0 where not counted"),
    _row("counted", "b t", "n", "loss mask: 1 where the target is counted, else 0", engines="reference"),
    _row(
        "class_weights",
        "v",
        "w",
        "class weights: how much each token counts as a target",
        engines="reference",
    ),
    _row("target_weights", "b t", "w_y", "target weights: 0 where not counted", engines="reference"),
    _row("weighted_nll", "b t", "nll_w", "weighted negative log-likelihood of the target"),
    _row("neg_log_probs", "b t v", "−ln p", "negative log-probabilities of all tokens"),
    _row("uniform_nll", "b t", "nll_u", "uniform cross-entropy: mean of −ln p over the vocabulary, weighted"),
    _row("smoothed", "b t", "nll_α", "label-smoothed loss: (1 − α) · target's + α · uniform cross-entropy"),
    _row("cross_entropy", "", "ℒ_CE", "cross-entropy: mean over the counted targets, without the z-loss"),
    _row("z_penalty", "b t", "lse²", "squared log-sum-exp of the logits"),
    _row("z_loss", "", "ℒ_z", "z-loss: z · mean of lse² over the counted targets"),
    _row("loss", "", "ℒ", "loss: mean over the counted targets"),
    _row("d.loss", "", "dℒ", "gradient of the loss with respect to itself: 1", engines="reference"),
    # the update
    _row("grad_norm", "", "‖g‖", "gradient norm: of all gradients as one vector"),
    _row("clip", "", "clip", "clipping factor: limit / max(gradient norm, limit)"),
)

_TABLE = {row.name: row for row in PARAMETERS_AND_VALUES}
_UPDATED = re.compile(r"(?P<base>.+?)(?P<moment>\.[mv])?@(?P<k>\d+)")
_LAYER = re.compile(r"^blocks\.(\d+)\.")


def asks_for_heads(name: str) -> bool:
    """Returns whether a name, a pattern or an address is one of `attn.head_out`.

    >>> asks_for_heads("d.blocks.*.attn.head_out[h=2]"), asks_for_heads("blocks.0.attn.*")
    (True, False)
    """
    return HEAD_OUT in re.split(r"[.\[@]", name)


def describe(name: str, also: Mapping[str, Name] = MappingProxyType({})) -> Name | None:
    """Returns the glossary's entry for a full name, by rule for gradients, moments and updates; None where
    there is none. `also` holds the entries that steps of a tape added.

    >>> describe("d.blocks.3.attn.q").symbol
    'dQ'
    >>> describe("embed.weight.m@2").axes
    ('v', 'c')
    >>> describe("d.blocks.3.attn.q_proj.lora_b").symbol
    'dB_Q'
    """
    return _describe(name, also) if also else _describe_once(name)


@lru_cache(1 << 14)
def _describe_once(name: str) -> Name | None:
    return _describe(name, {})


def _describe(name: str, also: Mapping[str, Name]) -> Name | None:
    found = also.get(name) or _TABLE.get(_LAYER.sub("blocks.L.", name))
    if found:
        return replace(found, name=name)
    if updated := _UPDATED.fullmatch(name):
        base, moment, k = updated["base"], updated["moment"], updated["k"]
        if moment and describe(base + moment, also):  # attention's v after an update, not a moment
            base, moment = base + moment, None
        return _derive(also, name, base, *_UPDATE_WORDS[moment], k)
    for ending, (symbol, meaning, engines) in _DROPOUT_WORDS.items():
        if name.endswith(ending) and not name.startswith("d."):
            of = describe(name.removesuffix(ending), also)
            return of and replace(
                of,
                name=name,
                symbol=symbol.format(of.symbol),
                meaning=meaning.format(of.term),
                engines=engines,
                invariant="",
            )
    for ending, (axes, letter, meaning) in _ADAPTER_WORDS.items():
        if name.endswith(ending) and (of := _TABLE.get(_weight_of(name, ending))):
            symbol = of.symbol.replace("W", letter)
            meaning = meaning.format(of.term.removesuffix(" weight"))
            return replace(of, name=name, axes=axes, symbol=symbol, meaning=meaning, transposed=False)
    for ending, (letter, meaning) in _QUANTIZED_WORDS.items():
        of = _TABLE.get(_LAYER.sub("blocks.L.", name).removesuffix(ending)) if name.endswith(ending) else None
        if of and of.is_parameter and len(of.axes) == 2:
            axes = of.axes if letter == "q" else (of.axes[0], "group")
            of = replace(of, name=name, axes=axes, engines="reference", meaning=meaning.format(of.term))
            return replace(of, symbol=f"{letter}_{of.symbol.rpartition('_')[2]}")
    ending = ".backpropagated" if name.startswith("d.") else ".computed"
    if name.endswith(ending):
        return _derive(also, name, name.removesuffix(ending), "{}°", "{}, before the edit")
    if name.startswith("d."):
        base = name.removeprefix("d.")
        if base.endswith(".clipped"):
            return _derive(also, name, f"d.{base.removesuffix('.clipped')}", "{}ᶜ", "{}, clipped")
        base, via, user = base.partition(".via.")
        symbol, meaning = "d{}", "gradient of {}"
        if via:
            symbol, meaning = "d{}|" + _short(user), f"gradient of {{}}, part through {user}"
        return _derive(also, name, base, symbol, meaning)
    return None


_DROPOUT_WORDS = {
    ".keep": ("m({})", "dropout mask of {}: 0, or 1 / (1 − rate)", "both"),
    ".dropped": ("{}ᵈ", "{} after dropout", "both"),
}
_ADAPTER_WORDS = {
    ".lora_a": (("rank", "in"), "A", "LoRA A of the {}"),
    ".lora_b": (("out", "rank"), "B", "LoRA B of the {}"),
}
_QUANTIZED_WORDS = {
    ".integers": ("q", "integers of the quantized {}"),
    ".scales": ("s", "scales of the quantized {}: one for each group of a row"),
    ".minimums": ("m", "minimums of the quantized {}: added to scale · integer"),
}
QUANTIZED_PARTS = tuple(_QUANTIZED_WORDS)
"""How the names of the parts of a quantized weight end."""
_UPDATE_WORDS = {
    None: ("{}@{k}", "{} after update {k}"),
    ".m": ("m@{k}", "first moment of {} after update {k}"),
    ".v": ("v@{k}", "second moment of {} after update {k}"),
}


def _derive(
    also: Mapping[str, Name], name: str, base: str, symbol: str, meaning: str, k: str = ""
) -> Name | None:
    of = describe(base, also)
    if of is None:
        return None
    return replace(
        of,
        name=name,
        symbol=symbol.replace("{k}", k).replace("{}", of.symbol),
        meaning=meaning.replace("{k}", k).replace("{}", of.term),
        engines="both" if base == name.removeprefix("d.") else "reference",
        invariant="",
    )


def _weight_of(name: str, ending: str) -> str:
    return _LAYER.sub("blocks.L.", name).removesuffix(ending) + ".weight"


def _short(name: str) -> str:
    return _LAYER.sub("", name).rpartition(".")[2]

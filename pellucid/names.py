"""The glossary as data: every named value, its axes, its symbol and what it means.

Both engines use these names and no others. `L` stands for a layer's number. Names are built by rule
from the table, so the table stays short:

    d.X           the gradient of the loss with respect to X
    d.X.via.Y     the part of it that came through Y, where X has several users
    d.X.clipped   the gradient after clipping by the global norm
    X.keep        what dropout multiplies X with: 0, or 1 / (1 − rate)
    X.dropped     X after dropout
    X.lora_a  X.lora_b   what an adapter adds to the projection X: X.weight + s · lora_b lora_a
    X.m@k  X.v@k  a parameter's moments after k updates
    X@k           a parameter after k updates, or a value in the forward pass after k updates
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

IGNORE_INDEX = -100
"""The target of a position that the loss omits, as in PyTorch's `cross_entropy`."""

LETTERS = {
    "b": "sequence of the batch",
    "t": "position being computed",
    "s": "position looked at",
    "p": "position",
    "c": "channel of the residual stream",
    "h": "query head",
    "k": "key/value head; query head h reads k, and h = kg is h = k·G + g",
    "d": "channel of one head",
    "f": "hidden channel of the feed-forward",
    "v": "token of the vocabulary",
    "out": "output channel; of a projection into heads, out = hd is out = h·D + d",
    "in": "input channel",
    "pair": "pair of channels that turn together",
    "r": "feature that stands for a query or a key",
    "n": "row of the learned bias of distances",
    "rank": "direction of an adapter",
    "1": "one number for the row",
}


@dataclass(frozen=True)
class Name:
    """One row of the glossary.

    `engines` is "both" where the fast engine emits the value too; agreement is over those.
    A `transposed` symbol is the matrix that formulas use, x W, while the file holds (out, in).
    """

    name: str
    axes: tuple[str, ...]
    symbol: str
    meaning: str
    engines: str = "both"
    invariant: str = ""
    transposed: bool = False


def _row(name: str, axes: str, symbol: str, meaning: str, **more: str | bool) -> Name:
    return Name(name, tuple(axes.split()), symbol, meaning, **more)  # type: ignore[arg-type]


def _linear(name: str, symbol: str, bias: str, meaning: str) -> list[Name]:
    return [
        _row(f"{name}.weight", "out in", symbol, meaning, transposed=True),
        _row(f"{name}.bias", "out", bias, f"the bias of: {meaning}"),
    ]


def _norm(name: str, what: str, axes: str = "b t c", x: str = "X") -> list[Name]:
    rows, channel = axes[:-1], axes[-1]
    return [
        _row(f"{name}.weight", channel, "γ", f"the gain of the norm {what}"),
        _row(f"{name}.bias", channel, "β", f"the shift of the norm {what}"),
        _row(f"{name}.mean", f"{rows}1", "μ", f"the mean of each row of channels, {what}"),
        _row(f"{name}.centered", axes, f"{x}̄", f"the channels without their mean, {what}"),
        _row(f"{name}.rstd", f"{rows}1", "r", f"one over the root mean square of what is normed, {what}"),
        _row(f"{name}.normed", axes, f"{x}̂", f"the channels at unit size, {what}"),
        _row(f"{name}.out", axes, "Y", f"the normed channels with gain and shift, {what}"),
    ]


PARAMETERS_AND_VALUES: tuple[Name, ...] = (
    # what is given
    _row("ids", "b t", "id", "the token ids that the model reads", engines="reference"),
    _row("targets", "b t", "y", "the token that should come next (−100: not counted)", engines="reference"),
    _row("position_ids", "t", "pos", "the position of each token", engines="reference"),
    _row("angles", "t pair", "θ", "how far each pair of channels is turned at each position"),
    _row("segments", "b t", "seg", "the document of its row that each token belongs to", engines="reference"),
    _row("same_segment", "b 1 t s", "same", "1 where query and key are of one document", engines="reference"),
    _row(
        "position_mask",
        "b 1 t s",
        "mask_pos",
        "1 where the positions allow looking, 0 where not",
        engines="reference",
    ),
    _row("directions", "r d", "Ω", "the random directions that the features look along", engines="reference"),
    _row("mask", "b 1 t s", "mask", "1 where a position may be looked at, 0 where not"),
    # from tokens to vectors
    _row("embed.weight", "v c", "E", "one row of channels for each token"),
    _row("positions.weight", "p c", "W_pos", "one learned row of channels for each position"),
    _row("embedded", "b t c", "X_E", "each token's row of the embedding"),
    _row("position_rows", "t c", "X_pos", "the row that each position adds"),
    _row("positioned", "b t c", "X_0", "embedding plus position"),
    *_norm("embed_norm", "after the embedding"),
    _row("position_bias.weight", "n h", "W_bias", "one learned bias per head for each row of distances"),
    _row("bias_ids", "t s", "row", "the row that holds the bias of two positions", engines="reference"),
    _row("bias_rows", "t s h", "b_rel", "the learned bias of each two positions"),
    _row("position_bias", "h t s", "B", "what is added to each score for the distance of its positions"),
    # one block
    _row("blocks.L.resid_pre", "b t c", "X", "the residual stream entering the block"),
    *_norm("blocks.L.attn_norm", "before attention"),
    *_norm("blocks.L.attn_out_norm", "on what attention writes"),
    *_norm("blocks.L.attn_post_norm", "after attention's sum"),
    *_linear("blocks.L.attn.q_proj", "W_Q", "b_Q", "what each position asks for"),
    *_linear("blocks.L.attn.k_proj", "W_K", "b_K", "what each position answers to"),
    *_linear("blocks.L.attn.v_proj", "W_V", "b_V", "what each position gives"),
    *_linear("blocks.L.attn.o_proj", "W_O", "b_O", "how the heads write to the stream"),
    _row("blocks.L.attn.q", "b h t d", "Q", "the queries"),
    _row("blocks.L.attn.k", "b k s d", "K", "the keys"),
    _row("blocks.L.attn.v", "b k s d", "V", "the values"),
    *_norm("blocks.L.attn.q_norm", "of the queries", "b h t d", "Q"),
    *_norm("blocks.L.attn.k_norm", "of the keys", "b k s d", "K"),
    _row("blocks.L.attn.q_normed", "b h t d", "Q_N", "the queries, normed"),
    _row("blocks.L.attn.k_normed", "b k s d", "K_N", "the keys, normed"),
    _row("blocks.L.attn.q_rot", "b h t d", "Q'", "the queries turned", invariant="keeps norms"),
    _row("blocks.L.attn.k_rot", "b k s d", "K'", "the keys turned", invariant="keeps norms"),
    _row("blocks.L.attn.past_k", "b k p d", "K_past", "the cached keys, already turned"),
    _row("blocks.L.attn.past_v", "b k p d", "V_past", "the cached values"),
    _row("blocks.L.attn.k_all", "b k s d", "K_all", "cached and new keys"),
    _row("blocks.L.attn.v_all", "b k s d", "V_all", "cached and new values"),
    _row("blocks.L.attn.scores", "b h t s", "S", "how well each key answers each query"),
    _row("blocks.L.attn.capped", "b h t s", "S_cap", "the scores, none beyond the cap"),
    _row("blocks.L.attn.biased", "b h t s", "S_B", "the scores with the bias of their distance"),
    _row("blocks.L.attn.masked", "b h t s", "M", "the scores, −∞ where looking is forbidden"),
    _row("blocks.L.attn.q_feat", "b h t r", "φ(Q)", "the features of each query"),
    _row("blocks.L.attn.k_feat", "b k s r", "φ(K)", "the features of each key"),
    _row("blocks.L.attn.kernel", "b h t s", "κ", "what query and key have in common, 0 where forbidden"),
    _row(
        "blocks.L.attn.pattern",
        "b h t s",
        "P",
        "how much each position takes from each other",
        invariant="rows sum to 1",
    ),
    _row("blocks.L.attn.z", "b h t d", "Z", "each head's mixture of values"),
    _row("blocks.L.attn_out", "b t c", "O", "what attention writes to the stream"),
    _row("blocks.L.attn_sum", "b t c", "X_a", "the stream plus what attention wrote, before their norm"),
    _row("blocks.L.resid_mid", "b t c", "X_mid", "the stream after attention"),
    *_norm("blocks.L.mlp_norm", "before the feed-forward"),
    *_norm("blocks.L.mlp_out_norm", "on what the feed-forward writes"),
    *_norm("blocks.L.mlp_post_norm", "after the feed-forward's sum"),
    *_linear("blocks.L.mlp.gate_proj", "W_G", "b_G", "the gates of the hidden channels"),
    *_linear("blocks.L.mlp.up_proj", "W_1", "b_1", "what the hidden channels look for"),
    *_linear("blocks.L.mlp.down_proj", "W_2", "b_2", "what the hidden channels write"),
    _row("blocks.L.mlp.gate", "b t f", "U_G", "each hidden channel's gate"),
    _row("blocks.L.mlp.up", "b t f", "U", "each hidden channel before the activation or gate"),
    _row("blocks.L.mlp.act", "b t f", "A", "the activation"),
    _row("blocks.L.mlp.hidden", "b t f", "U_H", "the hidden channels that are written"),
    _row("blocks.L.mlp_out", "b t c", "O_F", "what the feed-forward writes to the stream"),
    _row(
        "blocks.L.mlp_sum", "b t c", "X_f", "the stream plus what the feed-forward wrote, before their norm"
    ),
    _row("blocks.L.resid_post", "b t c", "X_post", "the stream leaving the block"),
    # from vectors to probabilities and loss
    *_norm("final_norm", "before the unembedding"),
    _row("unembed.weight", "v c", "W_U", "one direction for each token", transposed=True),
    _row("unembed.bias", "v", "b_U", "each token's head start"),
    _row("unembedded", "b t v", "ℓ_0", "each token's score before the cap"),
    _row("logits", "b t v", "ℓ", "each token's score to come next"),
    _row("probs", "b t v", "p", "each token's probability to come next", invariant="rows sum to 1"),
    _row("lse", "b t", "lse", "log-sum-exp of the logits: −lse turns a logit into ln p"),
    _row("nll", "b t", "nll", "surprise at the target, −ln p (0 where not counted)"),
    _row("counted", "b t", "n", "1 where the target counts, 0 where not", engines="reference"),
    _row("class_weights", "v", "w", "how much each token counts as a target", engines="reference"),
    _row("target_weights", "b t", "w_y", "the target's weight (0 where not counted)", engines="reference"),
    _row("weighted_nll", "b t", "nll_w", "surprise at the target, times the target's weight"),
    _row("neg_log_probs", "b t v", "−ln p", "surprise at each token, whichever came"),
    _row("uniform_nll", "b t", "nll_u", "the mean surprise over all tokens, each times its weight"),
    _row("smoothed", "b t", "nll_α", "surprise at the target, and a share α of that at all tokens"),
    _row("cross_entropy", "", "ℒ_CE", "the mean surprise over the counted targets, before the z-loss"),
    _row("z_penalty", "b t", "lse²", "the square of lse, which the z-loss keeps small"),
    _row("z_loss", "", "ℒ_z", "z times the mean of lse² over the counted targets"),
    _row("loss", "", "ℒ", "the mean surprise over the counted targets"),
    _row("d.loss", "", "dℒ", "1, where the backward pass starts", engines="reference"),
    # the update
    _row("grad_norm", "", "‖g‖", "the length of all gradients taken as one vector"),
    _row("clip", "", "clip", "the factor that keeps ‖g‖ within its limit"),
)

_TABLE = {row.name: row for row in PARAMETERS_AND_VALUES}
_UPDATED = re.compile(r"(?P<base>.+?)(?P<moment>\.[mv])?@(?P<k>\d+)")
_LAYER = re.compile(r"^blocks\.(\d+)\.")


def describe(name: str, also: Mapping[str, Name] = MappingProxyType({})) -> Name | None:
    """The glossary's entry for a full name, built by rule for gradients, moments and updates.

    `also` holds entries that a tape's own steps brought along.

    >>> describe("d.blocks.3.attn.q").symbol
    'dQ'
    >>> describe("embed.weight.m@2").axes
    ('v', 'c')
    >>> describe("d.blocks.3.attn.q_proj.lora_b").symbol
    'dB_Q'
    """
    found = also.get(name) or _TABLE.get(_LAYER.sub("blocks.L.", name))
    if found:
        return replace(found, name=name)
    if updated := _UPDATED.fullmatch(name):
        base, moment, k = updated["base"], updated["moment"], updated["k"]
        if moment and describe(base + moment, also):  # attention's v after an update, no moment
            base, moment = base + moment, None
        return _derived(also, name, base, *_UPDATE_WORDS[moment], k)
    for ending, (symbol, meaning, engines) in _DROPOUT_WORDS.items():
        if name.endswith(ending) and not name.startswith("d."):
            of = describe(name.removesuffix(ending), also)
            return of and replace(
                of,
                name=name,
                symbol=symbol.format(of.symbol),
                meaning=meaning.format(of.meaning),
                engines=engines,
                invariant="",
            )
    for ending, (axes, letter, meaning) in _ADAPTER_WORDS.items():
        if name.endswith(ending) and (of := _TABLE.get(_weight_of(name, ending))):
            symbol = of.symbol.replace("W", letter)
            told = meaning.format(of.meaning)
            return replace(of, name=name, axes=axes, symbol=symbol, meaning=told, transposed=False)
    if name.startswith("d."):
        base = name.removeprefix("d.")
        if base.endswith(".clipped"):
            return _derived(also, name, f"d.{base.removesuffix('.clipped')}", "{}ᶜ", "{}, clipped")
        base, via, user = base.partition(".via.")
        symbol, meaning = "d{}", "the gradient of: {}"
        if via:
            symbol, meaning = (
                "d{}|" + _short(user),
                "the part through {user} of the gradient of: {}",
            )
        return _derived(also, name, base, symbol, meaning.replace("{user}", user))
    return None


_DROPOUT_WORDS = {
    ".keep": ("m({})", "0 where dropout leaves out, else 1 / (1 − rate), of: {}", "both"),
    ".dropped": ("{}ᵈ", "after dropout: {}", "both"),
}
_ADAPTER_WORDS = {
    ".lora_a": (("rank", "in"), "A", "the directions that an adapter reads, to change: {}"),
    ".lora_b": (("out", "rank"), "B", "what an adapter adds for each of its directions, to change: {}"),
}
_UPDATE_WORDS = {
    None: ("{}@{k}", "after update {k}: {}"),
    ".m": ("m@{k}", "the momentum after update {k}, of: {}"),
    ".v": ("v@{k}", "the running mean of the squared gradient after update {k}, of: {}"),
}


def _derived(
    also: Mapping[str, Name], name: str, base: str, symbol: str, meaning: str, k: str = ""
) -> Name | None:
    of = describe(base, also)
    if of is None:
        return None
    return replace(
        of,
        name=name,
        symbol=symbol.replace("{k}", k).replace("{}", of.symbol),
        meaning=meaning.replace("{k}", k).replace("{}", of.meaning),
        engines="both" if base == name.removeprefix("d.") else "reference",
        invariant="",
    )


def _weight_of(name: str, ending: str) -> str:
    return _LAYER.sub("blocks.L.", name).removesuffix(ending) + ".weight"


def _short(name: str) -> str:
    return _LAYER.sub("", name).rpartition(".")[2]

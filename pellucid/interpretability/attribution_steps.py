"""Direct logit attribution as steps of a tape: what each component adds to one logit.

The logit of a token is linear in what is added to the residual stream, once each norm on the way divides by
its recorded standard deviation. So the logit is a sum of products X · g, over the rows X of the components at
the position, and the direction g of each is W_U's row of the token, taken back from the logits:

    through a norm           g ← r (γ ⊙ g), and in LayerNorm less its mean; the bias adds β · g
    through a residual       g, and α g for the output of a sub-layer behind a scaled residual

A head's part comes from its keys: pattern[s] v[s] · (W_O g). Names: `attribution.X` is what X adds to the
logit, `attribution.row.X` X at the position, `attribution.direction…` g.
"""

from collections.abc import Iterator

import numpy as np

from pellucid.base.errors import UsageError
from pellucid.base.names import describe
from pellucid.config import ModelConfig
from pellucid.interpretability.attention import has_pattern
from pellucid.parts.norms import NormConfig
from pellucid.parts.residuals import NoResidual, PlainResidual, ScaledResidual
from pellucid.reference.op import Ref
from pellucid.reference.ops.arithmetic import add, subtract
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.indexing import concat, narrow, take
from pellucid.reference.tape import Tape

SCOPE = "attribution"
HEADS, MLPS, SUM = f"{SCOPE}.heads", f"{SCOPE}.mlps", f"{SCOPE}.sum"


def has_position_rows(config: ModelConfig) -> bool:
    """Returns whether position embeddings are added to the token embeddings."""
    first = np.zeros(1, int)
    rows = config.positions.rows(first, config.d_model)
    return rows is not None or config.positions.row_ids(first) is not None


def list_norms(config: ModelConfig) -> Iterator[tuple[str, NormConfig]]:
    """Yields the name and the kind of each norm that is applied to the stream, or to what is added to it."""
    yield "embed_norm", config.embed_norm
    for layer in range(config.n_layer):
        for sub_layer in ("attn", *["mlp"] * (not config.mlp.is_none)):
            for place in ("out_norm", "post_norm"):
                if place in config.placement.places:
                    yield f"blocks.{layer}.{sub_layer}_{place}", config.norm
    if config.placement.final:
        yield "final_norm", config.norm


def list_values(config: ModelConfig) -> list[str]:
    """Returns the names, some as patterns, of the recorded values that an attribution reads."""
    per_block = ["attn.head_out", *["attn.pattern", "attn.v"] * has_pattern(config)]
    per_block += ["mlp_out"] * (not config.mlp.is_none)
    return [
        "embedded",
        *["position_rows"] * has_position_rows(config),
        *(f"{name}.rstd" for name, norm in list_norms(config) if "rstd" in norm.values),
        *(f"blocks.*.{name}" for name in per_block),
        find_logits_name(config),
    ]


def list_weights(config: ModelConfig) -> list[str]:
    """Returns the names of the parameters that an attribution reads."""
    norms = [name for name, _ in list_norms(config)]
    wanted = {config.unembedding.weight, "unembed.bias"}
    wanted |= {f"{norm}.{part}" for norm in norms for part in ("weight", "bias")}
    return [name for name in config.parameters() if name in wanted or ".attn.o_proj." in name]


def find_logits_name(config: ModelConfig) -> str:
    """Returns the value that the components add up to: the logits, or the logits before their soft cap."""
    return "logits" if config.logit_cap.is_none else "unembedded"


def append_attribution(
    tape: Tape, config: ModelConfig, token: int, against: int | None, position: int
) -> list[str]:
    """Appends the attribution of one logit, or of the difference of two, and returns the names of the parts
    that add up to `attribution.sum`, in the order of the computation.

    The tape holds the values and weights that are listed above, of one row.
    """
    walk = _BackwardWalk(tape, config, position)
    g: Ref | None = walk.find_direction(token, against)
    if "unembed.bias" in tape:
        walk.add_unembedding_bias(token, against)
    if config.placement.final:
        g = walk.pass_norm("final_norm", config.norm, g)
    for layer in reversed(range(config.n_layer)):
        for sub_layer in (*["mlp"] * (not config.mlp.is_none), "attn"):
            name = f"blocks.{layer}.{sub_layer}"
            if "post_norm" in config.placement.places:
                g = walk.pass_norm(f"{name}_post_norm", config.norm, g)
            out = walk.enter_sub_layer(f"{name}_out", g)
            if "out_norm" in config.placement.places:
                out = walk.pass_norm(f"{name}_out_norm", config.norm, out)
            if sub_layer == "mlp":
                walk.add_row(f"{name}_out", out, (1,))
            else:
                walk.add_attention(name, out)
            if isinstance(config.residual, NoResidual):
                g = None
    if not config.embed_norm.is_none:
        g = walk.pass_norm("embed_norm", config.embed_norm, g)
    if has_position_rows(config):
        walk.add_row("position_rows", g, ())
    walk.add_row("embedded", g, ())
    return walk.sum_up()


class _BackwardWalk:
    """The way from the logits back to the embeddings. A direction is None where nothing passes: without a
    residual connection each sub-layer replaces the stream."""

    def __init__(self, tape: Tape, config: ModelConfig, position: int) -> None:
        self.tape, self.config, self.position = tape, config, position
        self.t = tape.scope(SCOPE)
        self.parts: list[Ref] = []

    def find_direction(self, token: int, against: int | None) -> Ref:
        """Returns W_U's row of the token [1 C], less that of the other token."""
        weight = self.tape.ref(self.config.unembedding.weight)
        id = self._describe(self.t.constant("token", np.array([token])), "1", "id", "token whose logit it is")
        name = "direction" if against is None else "direction.token"
        g = self.t(name, take, weight, id)
        self._describe(g, "1 c", "g", "unembedding of the token")
        if against is None:
            return g
        other = self.t.constant("against", np.array([against]))
        self._describe(other, "1", "id_2", "token whose logit is subtracted")
        row = self.t("direction.against", take, weight, other)
        self._describe(row, "1 c", "g_2", "unembedding of the token whose logit is subtracted")
        g = self.t("direction", subtract, g, row)
        return self._describe(g, "1 c", "g_Δ", "unembedding of the token less that of the other")

    def add_unembedding_bias(self, token: int, against: int | None) -> None:
        bias, t = self.tape.ref("unembed.bias"), self.t
        part = t("bias.token", narrow, bias, axis=0, start=token, length=1)
        self._describe(part, "1", "b_v", "unembedding bias of the token")
        if against is not None:
            other = t("bias.against", narrow, bias, axis=0, start=against, length=1)
            self._describe(other, "1", "b_2", "unembedding bias of the token whose logit is subtracted")
            part = t("bias.difference", subtract, part, other)
            self._describe(part, "1", "b_Δ", "difference of the unembedding biases")
        self._keep("unembed.bias", t("unembed.bias", einsum, part, spec="1->"))

    def pass_norm(self, name: str, norm: NormConfig, g: Ref | None) -> Ref | None:
        """Returns the direction before a norm, and adds what the norm's bias adds."""
        if norm.is_none or g is None:
            return g
        if f"{name}.bias" in self.tape:
            bias = self.tape.ref(f"{name}.bias")
            self._keep(f"{name}.bias", self.t(f"{name}.bias", einsum, bias, g, spec="c,1c->"))
        t, is_centered = self.t.scope("direction"), "mean" in norm.values
        scaled = t(
            f"{name}.scaled" if is_centered else name,
            einsum,
            g,
            self.tape.ref(f"{name}.weight"),
            self._row(f"{name}.rstd"),
            spec="1c,c,111->1c",
        )
        self._describe(scaled, "1 c", "g_γ", f"direction times γ and 1/σ of {name}")
        if not is_centered:
            return scaled
        mean = t(f"{name}.mean", einsum, scaled, spec="1c->11", scale=1 / scaled.shape[-1])
        self._describe(mean, "b 1", "ḡ_γ", "its mean over the channels")
        g = t(name, subtract, scaled, mean)
        return self._describe(g, "1 c", "g", f"direction before {name}")

    def enter_sub_layer(self, name: str, g: Ref | None) -> Ref | None:
        """Returns the direction of what a sub-layer adds to the stream."""
        residual = self.config.residual
        if isinstance(residual, ScaledResidual) and g is not None:
            g = self.t(f"direction.{name}", einsum, g, spec="1c->1c", scale=residual.alpha)
            return self._describe(g, "1 c", "g_α", f"direction of {name}: scaled as the residual scales it")
        if not isinstance(residual, NoResidual | PlainResidual | ScaledResidual):
            raise UsageError(f"attribution does not know the residual connection {residual.kind!r}.")
        return g

    def add_row(self, name: str, g: Ref | None, shape: tuple[int, ...]) -> None:
        """Adds what a component [B T C] (or [T C]) adds at the position."""
        if g is None:
            self._keep(name, self.t.constant(name, np.zeros(shape)))
            return
        row = self._row(name)
        spec = f"{'1' * (len(row.shape) - 1)}c,1c->{'1' * len(shape)}"
        self._keep(name, self.t(name, einsum, row, g, spec=spec))

    def add_attention(self, name: str, g: Ref | None) -> None:
        """Adds the parts of the heads and of the output bias, and of the keys where the pattern is known."""
        head_out, n_head = f"{name}.head_out", self.config.n_head
        if g is None:
            self._keep(head_out, self.t.constant(head_out, np.zeros((1, n_head))), "l h")
            return
        if f"{name}.o_proj.bias" in self.tape:
            bias = self.tape.ref(f"{name}.o_proj.bias")
            self._keep(f"{name}.o_proj.bias", self.t(f"{name}.o_proj.bias", einsum, bias, g, spec="c,1c->"))
        part = self.t(head_out, einsum, self._row(head_out), g, spec="1h1c,1c->1h")
        self._keep(head_out, part, "l h")
        if not has_pattern(self.config):
            return
        direction = self.t.scope("direction")
        if f"{name}.o_proj.weight" in self.tape:
            weight = self.tape.ref(f"{name}.o_proj.weight")
            u = direction(f"{name}.v", einsum, weight, g, spec="c(hd),1c->hd", h=n_head)
        else:
            u = direction(f"{name}.v", einsum, g, spec="1(hd)->hd", h=n_head)
        self._describe(u, "h d", "u", "direction of each head's values: W_O g")
        pattern, values = self._row(f"{name}.pattern"), self.tape.ref(f"{name}.v")
        sources = self.t(f"{name}.sources", einsum, pattern, values, u, spec="1(kg)1s,1ksd,(kg)d->(kg)s")
        meaning = "what each head adds to the logit from each key; their sum is what the head adds"
        self._describe(sources, "h s", "a_s", meaning)

    def sum_up(self) -> list[str]:
        """Joins the heads and the MLPs of all layers, and adds everything up; returns the names, in order."""
        parts = self.parts[::-1]
        groups: dict[str, list[Ref]] = {HEADS: [], MLPS: []}
        totals: list[Ref] = []
        for part in parts:
            group = HEADS if len(part.shape) == 2 else MLPS if part.shape else ""
            groups.get(group, totals).append(part)
        for name, refs in groups.items():
            if not refs:
                continue
            joined = self.tape(name, concat, *refs, axis=0)
            axes, what = ("l h", "head") if name == HEADS else ("l", "MLP")
            self._describe(joined, axes, "A" if name == HEADS else "M", f"what each {what} adds to the logit")
            total = self.tape(f"{name}_sum", einsum, joined, spec="lh->" if name == HEADS else "l->")
            totals.append(self._describe(total, "", f"Σ_{what}", f"what all {what}s add to the logit"))
        logit = self.tape(SUM, add, *totals)
        self._describe(logit, "", "ℓ_sum", "the sum of all parts: the logit")
        return [part.name.removeprefix(f"{SCOPE}.") for part in parts]

    def _row(self, name: str) -> Ref:
        """Returns a value at the position, as a value of its own."""
        own, value = f"row.{name}", self.tape.ref(name)
        if own in self.t:
            return self.t.ref(own)
        row = self.t(own, narrow, value, axis=len(value.shape) - 2, start=self.position, length=1)
        about = describe(name)
        assert about is not None
        axes = " ".join("i" if axis == "t" else axis for axis in about.axes)
        return self._describe(row, axes, about.symbol, f"{about.term} at the position")

    def _keep(self, name: str, part: Ref, axes: str = "") -> None:
        axes = axes or ("l" if part.shape else "")
        self.parts.append(self._describe(part, axes, "a", f"what {name} adds to the logit"))

    def _describe(self, ref: Ref, axes: str, symbol: str, meaning: str) -> Ref:
        return self.tape.describe(ref, axes, symbol, meaning)

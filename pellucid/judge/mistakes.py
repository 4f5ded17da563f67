"""The catalogue of usual mistakes: wrong versions of a program that people (and programs) really write.

A mistake never touches the specification. It takes a program, a tape with its steps, and yields variants of
it in which a few steps are replaced. The probe measures what each convention would cost, `diagnosis.py` finds
the mistake whose numbers were recorded, and the tests plant mistakes to show that they are caught.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pellucid.config import ModelConfig
from pellucid.parts.positions.rope import Rope
from pellucid.reference.op import Array, Op, everything
from pellucid.reference.ops import find_op
from pellucid.reference.ops.arithmetic import add
from pellucid.reference.ops.einsum import einsum, format_axes, parse
from pellucid.reference.ops.online_softmax import WEIGHTED_SUM, running_output
from pellucid.reference.tape import Step, Tape


@dataclass(frozen=True)
class Program:
    """A tape, and the config that it was written from where that is known."""

    tape: Tape
    config: ModelConfig | None = None

    def steps(self, op: str = "", ending: str = "") -> Iterator[Step]:
        """Yields the steps of the forward pass with this operation, or whose names have this ending."""
        for name, step in self.tape.steps.items():
            if step.phase == "fwd" and op in ("", step.op.name) and name.endswith(ending):
                yield step


@dataclass(frozen=True)
class Variant:
    """A program with a mistake: the steps that replace others, and the wrong tables that they read. `note`
    says what replaces what: "gelu for silu"."""

    note: str = ""
    steps: Mapping[str, Step] = field(default_factory=dict)
    tables: Mapping[str, Array] = field(default_factory=dict)

    def rerun(self, tape: Tape) -> dict[str, Array]:
        """Returns every value of the program with the mistake in it."""
        values, changed = tape.values | dict(self.tables), set(self.tables)
        for name, right in tape.steps.items():
            step = self.steps.get(name, right)
            if name in self.steps or not changed.isdisjoint(step.inputs):
                values[name] = step.run(values)
                changed.add(name)
        return values


Mistake = Callable[[Program], Iterator[Variant]]
"""Yields variants, the likeliest first; none where the mistake does not apply."""


def _in_every_step(change: Callable[[Step, Tape], Step | None]) -> Mistake:
    """Returns the mistake made in every step to which it applies."""

    def mistake(program: Program) -> Iterator[Variant]:
        steps = {
            name: wrong for name, step in program.tape.steps.items() if (wrong := change(step, program.tape))
        }
        if steps:
            yield Variant("", steps)

    return mistake


def _replace_forward(step: Step, forward: Callable[..., Any]) -> Step:
    """Returns the step with other arithmetic."""
    return replace(step, op=Op(step.op.name, forward, everything, step.op.formula))


def _pass_through(step: Step, kept: str) -> Step:
    """Returns a step that passes one value on unchanged."""
    return replace(step, op=add, inputs=(kept,), attrs={})


def _replace_table(program: Program, table: str, wrong: Array, note: str = "") -> Variant:
    """Returns the program where every reader of a table reads a wrong one."""
    new = f"{table} (wrong)"
    steps = {
        name: replace(step, inputs=tuple(new if read == table else read for read in step.inputs))
        for name, step in program.tape.steps.items()
        if table in step.inputs
    }
    return Variant(note, steps, {new: wrong})


# ---- positions


def swap_rope_layout(program: Program) -> Iterator[Variant]:
    rotations = [*program.steps("rotate")]
    own = rotations[0].attrs["layout"] if rotations else ""
    if other := {"halves": "pairs", "pairs": "halves"}.get(own):
        steps = {step.name: replace(step, attrs=step.attrs | {"layout": other}) for step in rotations}
        yield Variant(f"{other} for {own}", steps)


USUAL_BASES = (10_000.0, 100_000.0, 500_000.0, 1_000_000.0)


def _find_rope(program: Program) -> Rope | None:
    """Returns the RoPE of the table of angles: the config's, or else the plain one that gives this table."""
    angles = program.tape.values.get("angles")
    if angles is None or angles.ndim != 2 or angles.shape[-1] < 2 or not angles[-1, 1]:
        return None
    known = program.config.positions if program.config else None
    base = float(angles[-1, 0] / angles[-1, 1]) ** angles.shape[-1]
    rope = known if isinstance(known, Rope) else Rope(float(f"{base:.9g}"))
    return rope if np.allclose(_compute_angles(rope, angles), angles, rtol=1e-6) else None


def _compute_angles(rope: Rope, like: Array) -> Array:
    return rope.rotation(np.arange(len(like)), 2 * like.shape[-1]).angles


def change_rope_base(factor: float) -> Mistake:
    """Returns the mistake of another base, smaller or larger: ten times, or one that other models have."""

    def mistake(program: Program) -> Iterator[Variant]:
        if (rope := _find_rope(program)) is None:
            return
        usual = [base for base in USUAL_BASES if base != rope.base and (base > rope.base) == (factor > 1)]
        for base in dict.fromkeys([rope.base * factor, *usual]):
            wrong = _compute_angles(replace(rope, base=base), program.tape["angles"])
            yield _replace_table(program, "angles", wrong, f"{base:,.0f} for {rope.base:,.0f}")

    return mistake


@_in_every_step
def reverse_rotation(step: Step, tape: Tape) -> Step | None:
    if step.op.name != "rotate":
        return None
    return replace(step, attrs=step.attrs | {"direction": -step.attrs.get("direction", 1.0)})


def omit_rope_scaling(program: Program) -> Iterator[Variant]:
    """Yields RoPE without its scaling of the context, and without its attention scale."""
    rope = _find_rope(program)
    if rope is None or rope.kind == "rope":
        return
    plain = _compute_angles(Rope(rope.base, rope.layout), program.tape["angles"])
    variant = _replace_table(program, "angles", plain, f"rope for {rope.kind}")
    yield replace(variant, steps={**_rescale_scores(program, 1 / rope.attention_scale), **variant.steps})


def count_positions_from_one(program: Program) -> Iterator[Variant]:
    """Yields row p + 1 of the learned positions for position p."""
    rows = program.tape.values.get("positions.weight")
    if rows is not None and "position_ids" in program.tape:
        yield _replace_table(program, "position_ids", (program.tape["position_ids"] + 1) % len(rows))


@_in_every_step
def omit_position_bias(step: Step, tape: Tape) -> Step | None:
    return _pass_through(step, step.inputs[0]) if step.name.endswith(".biased") else None


# ---- the mask


def _causal_mask(mask: Array) -> Array:
    queries, keys = mask.shape[-2:]
    return np.broadcast_to(np.tril(np.ones((queries, keys)), keys - queries), mask.shape)


def shift_mask(program: Program) -> Iterator[Variant]:
    mask = program.tape.values.get("mask")
    if mask is not None and (mask <= _causal_mask(mask)).all():
        ahead = np.concatenate([np.ones_like(mask[..., :1]), mask[..., :-1]], axis=-1)
        yield _replace_table(program, "mask", ahead)


def omit_mask(program: Program) -> Iterator[Variant]:
    mask = program.tape.values.get("mask")
    if mask is not None:
        yield _replace_table(program, "mask", np.ones_like(mask))


def use_causal_mask(program: Program) -> Iterator[Variant]:
    """Yields the causal mask in place of a narrower one."""
    mask = program.tape.values.get("mask")
    if (
        mask is not None
        and not np.array_equal(mask, _causal_mask(mask))
        and (mask <= _causal_mask(mask)).all()
    ):
        yield _replace_table(program, "mask", _causal_mask(mask))


# ---- norms and caps


def _omit_norm(*names: str) -> Mistake:
    """Returns the mistake by which the steps after a norm read what the norm reads."""

    def mistake(program: Program) -> Iterator[Variant]:
        tape, steps = program.tape, {}
        for step in program.steps("einsum", ".out"):
            scope = step.name.removesuffix(".out")
            if scope.rpartition(".")[2] in names:
                first = tape.steps.get(f"{scope}.centered", tape.steps[f"{scope}.normed"])
                steps[step.name] = _pass_through(step, first.inputs[0])
        if steps:
            yield Variant("", steps)

    return mistake


def _omit_cap(ending: str) -> Mistake:
    return _in_every_step(
        lambda step, tape: (
            _pass_through(step, step.inputs[0])
            if step.op.name == "soft_cap" and step.name.endswith(ending)
            else None
        )
    )


def _subtract_mean(x: Any) -> Any:
    return x - x.mean(axis=-1, keepdims=True)


def swap_norm(program: Program) -> Iterator[Variant]:
    tape, plain, centered = program.tape, {}, {}
    for step in program.steps("rstd"):
        scope = step.name.removesuffix(".rstd")
        if mean := tape.steps.get(f"{scope}.centered"):
            plain[mean.name] = _pass_through(mean, mean.inputs[0])
        elif f"{scope}.normed" in tape.steps:
            centered[step.name] = _replace_forward(
                step, lambda x, eps, right=step.op: right.forward(_subtract_mean(x), eps)
            )
            centered[f"{scope}.normed"] = _replace_forward(
                tape.steps[f"{scope}.normed"], lambda x, r, **_: _subtract_mean(x) * r
            )
    if centered:
        yield Variant("LayerNorm for RMSNorm", centered)
    if plain:
        yield Variant("RMSNorm for LayerNorm", plain)


USUAL_EPS = (1e-6, 1e-5, 1e-8, 1e-12, 1e-3, 0.0)


def change_norm_eps(program: Program) -> Iterator[Variant]:
    norms = [*program.steps("rstd")]
    own = norms[0].attrs["eps"] if norms else 0.0
    for eps in USUAL_EPS if norms else ():
        if eps != own:
            steps = {step.name: replace(step, attrs=step.attrs | {"eps": eps}) for step in norms}
            yield Variant(f"{eps:g} for {own:g}", steps)


@_in_every_step
def add_one_to_gain(step: Step, tape: Tape) -> Step | None:
    if step.op.name != "einsum" or not step.name.endswith("norm.out") or len(step.inputs) < 2:
        return None
    return _replace_forward(
        step, lambda x, gain, *shift, **attrs: step.op.forward(x, gain + 1.0, *shift, **attrs)
    )


@_in_every_step
def divide_by_n_minus_one(step: Step, tape: Tape) -> Step | None:
    def forward(x: Any, eps: float) -> Any:
        return ((x**2).sum(axis=-1, keepdims=True) / max(x.shape[-1] - 1, 1) + eps) ** -0.5

    return _replace_forward(step, forward) if step.op.name == "rstd" else None


@_in_every_step
def add_eps_outside_root(step: Step, tape: Tape) -> Step | None:
    def forward(x: Any, eps: float) -> Any:
        return 1 / ((x**2).mean(axis=-1, keepdims=True) ** 0.5 + eps)

    return _replace_forward(step, forward) if step.op.name == "rstd" else None


# ---- the feed-forward


NEAR = {
    "silu": ("gelu", "gelu_tanh", "relu", "sigmoid"),
    "gelu": ("gelu_tanh", "silu", "relu"),
    "gelu_tanh": ("gelu", "silu", "relu"),
    "relu": ("gelu", "gelu_tanh", "silu", "relu_squared"),
    "relu_squared": ("relu",),
}
"""The activations that each is mistaken for, the likeliest first."""


def swap_activation(program: Program) -> Iterator[Variant]:
    curves = [*program.steps(ending=".mlp.act")]
    own = curves[0].op.name if curves else ""
    for other in NEAR.get(own, ()):
        yield Variant(f"{other} for {own}", {step.name: replace(step, op=find_op(other)) for step in curves})


def swap_gate_and_up(program: Program) -> Iterator[Variant]:
    """Yields the two projections swapped, and their uses swapped: `hidden` is the same in both."""
    products: dict[str, Step] = {}
    uses: dict[str, Step] = {}
    for act in program.steps(ending=".mlp.act"):
        scope = act.name.removesuffix(".act")
        gate, up, hidden = (program.tape.steps.get(f"{scope}.{name}") for name in ("gate", "up", "hidden"))
        if gate and up and hidden:
            products |= {gate.name: replace(up, name=gate.name), up.name: replace(gate, name=up.name)}
            uses[act.name] = replace(act, inputs=(up.name,))
            uses[hidden.name] = replace(hidden, inputs=(act.name, gate.name))
    if products:
        yield Variant("", products)
        yield Variant("", uses)


# ---- attention


def _rescale_scores(program: Program, factor: float) -> dict[str, Step]:
    """Returns the steps that compute scores, with another factor than 1/√D."""
    return {
        step.name: replace(step, attrs=step.attrs | {"scale": step.attrs["scale"] * factor})
        for step in program.steps("einsum", ".scores")
        if factor != 1.0
    }


def _change_scale(factor: Callable[[int, int], float]) -> Mistake:
    """Returns the mistake of one factor too many in the scores; it depends on d_head and d_model."""

    def mistake(program: Program) -> Iterator[Variant]:
        q, stream = program.tape.values.get("blocks.0.attn.q"), program.tape.values.get("embedded")
        if q is None or stream is None:
            return
        if steps := _rescale_scores(program, factor(q.shape[-1], stream.shape[-1])):
            yield Variant("", steps)

    return mistake


@_in_every_step
def interleave_key_heads(step: Step, tape: Tape) -> Step | None:
    """Query head h reads key head h % K: `repeat` of all keys and values, for `repeat_interleave`."""
    spec = WEIGHTED_SUM if step.op is running_output else step.attrs.get("spec", "")
    if "(kg)" not in spec:
        return None
    heads = {tape[name].shape[1] for name in step.inputs if tape[name].ndim == 4}
    if len(heads - {1}) < 2:
        return None
    wrong = spec.replace("(kg)", "(gk)")
    if step.op is einsum:
        return replace(step, attrs=step.attrs | {"spec": wrong})

    def forward(powers: Any, values: Any, *before: Any) -> Any:
        new = einsum.forward(powers, values, spec=wrong)
        return before[0] * before[1] + new if before else new

    return _replace_forward(step, forward)


@_in_every_step
def apply_softmax_over_queries(step: Step, tape: Tape) -> Step | None:
    def forward(x: Any) -> Any:
        powers = np.exp(x - x.max(axis=-2, keepdims=True))
        return powers / powers.sum(axis=-2, keepdims=True)

    return _replace_forward(step, forward) if step.op.name == "softmax" and tape[step.name].ndim > 1 else None


# ---- weights and sums


def _transpose(ending: str) -> Mistake:
    """Returns the mistake of transposing the first square matrix among the operands of each such step."""

    def change(step: Step, tape: Tape) -> Step | None:
        if step.op is not einsum or not step.name.endswith(ending):
            return None
        spec = parse(step.attrs["spec"])
        for i, (axes, name) in enumerate(zip(spec.inputs, step.inputs, strict=False)):
            shape = tape[name].shape
            if len(shape) == 2 and shape[0] == shape[1] > 1:
                terms = [format_axes(axes[::-1] if i == j else other) for j, other in enumerate(spec.inputs)]
                rest = step.attrs["spec"][len(",".join(map(format_axes, spec.inputs))) :]
                return replace(step, attrs=step.attrs | {"spec": ",".join(terms) + rest})
        return None

    return _in_every_step(change)


@_in_every_step
def omit_biases(step: Step, tape: Tape) -> Step | None:
    if step.op is not einsum or not step.inputs[-1].endswith(".bias"):
        return None
    spec = parse(step.attrs["spec"])
    without = f"{','.join(map(format_axes, spec.inputs))}->{format_axes(spec.result)}"
    return replace(step, inputs=step.inputs[:-1], attrs=step.attrs | {"spec": without})


def swap_tying(program: Program) -> Iterator[Variant]:
    """Yields tied weights read as untied, where a loader initializes the missing matrix, and the reverse."""
    tape = program.tape
    if "embed.weight" not in tape:
        return
    for step in tape.steps.values():
        if step.name in ("logits", "unembedded") and step.op is einsum:
            if "unembed.weight" in step.inputs:
                inputs = tuple("embed.weight" if n == "unembed.weight" else n for n in step.inputs)
                yield Variant("tied for untied", {step.name: replace(step, inputs=inputs)})
            else:
                random = np.random.default_rng(0).standard_normal(tape["embed.weight"].shape, np.float32)
                inputs = tuple("initialized" if n == "embed.weight" else n for n in step.inputs)
                table = np.multiply(random, 0.02, dtype=np.float64)
                yield Variant(
                    "untied for tied", {step.name: replace(step, inputs=inputs)}, {"initialized": table}
                )


@_in_every_step
def scale_embedding(step: Step, tape: Tape) -> Step | None:
    if step.name != "embedded":
        return None
    width = tape[step.name].shape[-1]
    return _replace_forward(step, lambda rows, ids: step.op.forward(rows, ids) * width**0.5)


def _drop_branch(which: int) -> Mistake:
    def change(step: Step, tape: Tape) -> Step | None:
        if step.op is not add or len(step.inputs) < 2:
            return None
        lost = which % len(step.inputs)
        return replace(step, inputs=tuple(name for i, name in enumerate(step.inputs) if i != lost))

    return _in_every_step(change)


@_in_every_step
def flip_update_sign(step: Step, tape: Tape) -> Step | None:
    return replace(step, attrs=step.attrs | {"lr": -step.attrs["lr"]}) if "lr" in step.attrs else None


CONVENTIONS: dict[str, Mistake] = {
    "RoPE layout": swap_rope_layout,
    "RoPE base smaller": change_rope_base(0.1),
    "RoPE base larger": change_rope_base(10.0),
    "RoPE rotated the other way": reverse_rotation,
    "learned positions counted from 1": count_positions_from_one,
    "mask one token ahead": shift_mask,
    "no mask": omit_mask,
    "plain causal mask": use_causal_mask,
    "RoPE scaling omitted": omit_rope_scaling,
    "position bias omitted": omit_position_bias,
    "embedding norm omitted": _omit_norm("embed_norm"),
    "QK-norm omitted": _omit_norm("q_norm", "k_norm"),
    "score soft-cap omitted": _omit_cap("capped"),
    "logit soft-cap omitted": _omit_cap("logits"),
    "norm": swap_norm,
    "norm eps": change_norm_eps,
    "norm gain read as 1 + γ": add_one_to_gain,
    "activation": swap_activation,
    "gate and up swapped": swap_gate_and_up,
    "scores without 1/√D": _change_scale(lambda head, stream: head**0.5),
    "scores with 1/D": _change_scale(lambda head, stream: head**-0.5),
    "scores with 1/√C": _change_scale(lambda head, stream: (head / stream) ** 0.5),
    "query head h on key/value head h % K": interleave_key_heads,
    "output projection transposed": _transpose("attn_out"),
    "biases omitted": omit_biases,
    "unembedding": swap_tying,
    "embedding multiplied by √C": scale_embedding,
}
"""Other readings of the same weights: each loads without complaint."""

SLIPS: dict[str, Mistake] = {
    "matrix transposed": _transpose(""),
    "variance divided by N − 1": divide_by_n_minus_one,
    "eps outside the root": add_eps_outside_root,
    "softmax over the queries": apply_softmax_over_queries,
    "first term of the sum missing": _drop_branch(0),
    "last term of the sum missing": _drop_branch(-1),
    "gradient ascent instead of descent": flip_update_sign,
}
"""Wrong arithmetic in a step, under every convention."""

MISTAKES = CONVENTIONS | SLIPS


def describe(mistake: str, variant: Variant) -> str:
    """Returns a mistake and what replaces what in it: "norm eps: 1e-06 for 1e-05"."""
    return f"{mistake}: {variant.note}" if variant.note else mistake

"""The catalogue of usual mistakes: wrong versions of a program that people (and programs) really write.

A mistake never touches the specification. It takes a program, a tape with its steps, and yields variants of
it: a few steps that are others. The probe measures what each convention would cost, `fitting` finds the one
whose numbers were recorded, `diagnose` the one that explains a wrong answer, and the tests plant them to
show that they are caught.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pellucid.config import ModelConfig
from pellucid.judge.mismatch import find_mismatch
from pellucid.parts.positions.rope import Rope
from pellucid.reference.op import Array, Op, everything
from pellucid.reference.ops import find_op
from pellucid.reference.ops.arithmetic import add
from pellucid.reference.ops.einsum import einsum, parse, written
from pellucid.reference.ops.running import MIXED, running_mix
from pellucid.reference.tape import Step, Tape


@dataclass(frozen=True)
class Program:
    """A tape, and the config that it was written from where that is known."""

    tape: Tape
    config: ModelConfig | None = None

    def steps(self, op: str = "", ending: str = "") -> Iterator[Step]:
        """The steps of the forward pass of one operation, or whose names end so."""
        for name, step in self.tape.steps.items():
            if step.phase == "fwd" and op in ("", step.op.name) and name.endswith(ending):
                yield step


@dataclass(frozen=True)
class Variant:
    """A program with a mistake: the steps that are others, and tables that they read instead of the right
    ones. `note` says what stands for what: "gelu for silu"."""

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


def _each(change: Callable[[Step, Tape], Step | None]) -> Mistake:
    """The mistake made in every step to which it applies."""

    def mistake(program: Program) -> Iterator[Variant]:
        steps = {
            name: wrong for name, step in program.tape.steps.items() if (wrong := change(step, program.tape))
        }
        if steps:
            yield Variant("", steps)

    return mistake


def _with(step: Step, forward: Callable[..., Any]) -> Step:
    """The step with other arithmetic."""
    return replace(step, op=Op(step.op.name, forward, everything, step.op.formula))


def _omitted(step: Step, kept: str) -> Step:
    """The step that only hands on one value."""
    return replace(step, op=add, inputs=(kept,), attrs={})


def _reading(program: Program, table: str, wrong: Array, note: str = "") -> Variant:
    """The program where every reader of a table reads a wrong one."""
    new = f"{table} (wrong)"
    steps = {
        name: replace(step, inputs=tuple(new if read == table else read for read in step.inputs))
        for name, step in program.tape.steps.items()
        if table in step.inputs
    }
    return Variant(note, steps, {new: wrong})


# ---- positions


def rope_layout(program: Program) -> Iterator[Variant]:
    rotations = [*program.steps("rotate")]
    own = rotations[0].attrs["layout"] if rotations else ""
    if other := {"halves": "pairs", "pairs": "halves"}.get(own):
        steps = {step.name: replace(step, attrs=step.attrs | {"layout": other}) for step in rotations}
        yield Variant(f"{other} for {own}", steps)


USUAL_BASES = (10_000.0, 100_000.0, 500_000.0, 1_000_000.0)


def _rope(program: Program) -> Rope | None:
    """The RoPE that made the table of angles: the config's, or else the plain one whose table it is."""
    angles = program.tape.values.get("angles")
    if angles is None or angles.ndim != 2 or angles.shape[-1] < 2 or not angles[-1, 1]:
        return None
    known = program.config.positions if program.config else None
    base = float(angles[-1, 0] / angles[-1, 1]) ** angles.shape[-1]
    rope = known if isinstance(known, Rope) else Rope(float(f"{base:.9g}"))
    return rope if np.allclose(_angles(rope, angles), angles, rtol=1e-6) else None


def _angles(rope: Rope, like: Array) -> Array:
    return rope.rotation(np.arange(len(like)), 2 * like.shape[-1]).angles


def rope_base(factor: float) -> Mistake:
    """Another base, smaller or larger: ten times, or one that other models have."""

    def mistake(program: Program) -> Iterator[Variant]:
        if (rope := _rope(program)) is None:
            return
        usual = [base for base in USUAL_BASES if base != rope.base and (base > rope.base) == (factor > 1)]
        for base in dict.fromkeys([rope.base * factor, *usual]):
            wrong = _angles(replace(rope, base=base), program.tape["angles"])
            yield _reading(program, "angles", wrong, f"{base:,.0f} for {rope.base:,.0f}")

    return mistake


@_each
def rope_backwards(step: Step, tape: Tape) -> Step | None:
    if step.op.name != "rotate":
        return None
    return replace(step, attrs=step.attrs | {"direction": -step.attrs.get("direction", 1.0)})


def rope_unscaled(program: Program) -> Iterator[Variant]:
    """RoPE without its stretching of the context, and without what that does to the scores."""
    rope = _rope(program)
    if rope is None or rope.kind == "rope":
        return
    plain = _angles(Rope(rope.base, rope.layout), program.tape["angles"])
    variant = _reading(program, "angles", plain, f"rope for {rope.kind}")
    yield replace(variant, steps={**_rescaled(program, 1 / rope.attention_scale), **variant.steps})


def positions_from_one(program: Program) -> Iterator[Variant]:
    """Row p + 1 of the learned positions for position p."""
    rows = program.tape.values.get("positions.weight")
    if rows is not None and "position_ids" in program.tape:
        yield _reading(program, "position_ids", (program.tape["position_ids"] + 1) % len(rows))


@_each
def no_bias_of_distance(step: Step, tape: Tape) -> Step | None:
    return _omitted(step, step.inputs[0]) if step.name.endswith(".biased") else None


# ---- the mask


def _causal(mask: Array) -> Array:
    queries, keys = mask.shape[-2:]
    return np.broadcast_to(np.tril(np.ones((queries, keys)), keys - queries), mask.shape)


def mask_one_ahead(program: Program) -> Iterator[Variant]:
    mask = program.tape.values.get("mask")
    if mask is not None and (mask <= _causal(mask)).all():
        ahead = np.concatenate([np.ones_like(mask[..., :1]), mask[..., :-1]], axis=-1)
        yield _reading(program, "mask", ahead)


def no_mask(program: Program) -> Iterator[Variant]:
    mask = program.tape.values.get("mask")
    if mask is not None:
        yield _reading(program, "mask", np.ones_like(mask))


def mask_plain(program: Program) -> Iterator[Variant]:
    """The causal mask for one that lets a position see even less."""
    mask = program.tape.values.get("mask")
    if mask is not None and not np.array_equal(mask, _causal(mask)) and (mask <= _causal(mask)).all():
        yield _reading(program, "mask", _causal(mask))


# ---- norms and caps


def _norm_omitted(*names: str) -> Mistake:
    """The steps behind a norm read what the norm reads."""

    def mistake(program: Program) -> Iterator[Variant]:
        tape, steps = program.tape, {}
        for step in program.steps("einsum", ".out"):
            scope = step.name.removesuffix(".out")
            if scope.rpartition(".")[2] in names:
                first = tape.steps.get(f"{scope}.centered", tape.steps[f"{scope}.normed"])
                steps[step.name] = _omitted(step, first.inputs[0])
        if steps:
            yield Variant("", steps)

    return mistake


def _cap_omitted(ending: str) -> Mistake:
    return _each(
        lambda step, tape: (
            _omitted(step, step.inputs[0])
            if step.op.name == "soft_cap" and step.name.endswith(ending)
            else None
        )
    )


def _without_mean(x: Any) -> Any:
    return x - x.mean(axis=-1, keepdims=True)


def norm_kind(program: Program) -> Iterator[Variant]:
    tape, plain, centered = program.tape, {}, {}
    for step in program.steps("rstd"):
        scope = step.name.removesuffix(".rstd")
        if mean := tape.steps.get(f"{scope}.centered"):
            plain[mean.name] = _omitted(mean, mean.inputs[0])
        elif f"{scope}.normed" in tape.steps:
            centered[step.name] = _with(
                step, lambda x, eps, right=step.op: right.forward(_without_mean(x), eps)
            )
            centered[f"{scope}.normed"] = _with(
                tape.steps[f"{scope}.normed"], lambda x, r, **_: _without_mean(x) * r
            )
    if centered:
        yield Variant("LayerNorm for RMSNorm", centered)
    if plain:
        yield Variant("RMSNorm for LayerNorm", plain)


USUAL_EPS = (1e-6, 1e-5, 1e-8, 1e-12, 1e-3, 0.0)


def norm_eps(program: Program) -> Iterator[Variant]:
    norms = [*program.steps("rstd")]
    own = norms[0].attrs["eps"] if norms else 0.0
    for eps in USUAL_EPS if norms else ():
        if eps != own:
            steps = {step.name: replace(step, attrs=step.attrs | {"eps": eps}) for step in norms}
            yield Variant(f"{eps:g} for {own:g}", steps)


@_each
def norm_gain(step: Step, tape: Tape) -> Step | None:
    if step.op.name != "einsum" or not step.name.endswith("norm.out") or len(step.inputs) < 2:
        return None
    return _with(step, lambda x, gain, *shift, **attrs: step.op.forward(x, gain + 1.0, *shift, **attrs))


@_each
def sample_variance(step: Step, tape: Tape) -> Step | None:
    def forward(x: Any, eps: float) -> Any:
        return ((x**2).sum(axis=-1, keepdims=True) / max(x.shape[-1] - 1, 1) + eps) ** -0.5

    return _with(step, forward) if step.op.name == "rstd" else None


@_each
def eps_outside_the_root(step: Step, tape: Tape) -> Step | None:
    def forward(x: Any, eps: float) -> Any:
        return 1 / ((x**2).mean(axis=-1, keepdims=True) ** 0.5 + eps)

    return _with(step, forward) if step.op.name == "rstd" else None


# ---- the feed-forward


NEAR = {
    "silu": ("gelu", "gelu_tanh", "relu", "sigmoid"),
    "gelu": ("gelu_tanh", "silu", "relu"),
    "gelu_tanh": ("gelu", "silu", "relu"),
    "relu": ("gelu", "gelu_tanh", "silu", "relu_squared"),
    "relu_squared": ("relu",),
}
"""The curves that each is taken for, the likeliest first."""


def activation(program: Program) -> Iterator[Variant]:
    curves = [*program.steps(ending=".mlp.act")]
    own = curves[0].op.name if curves else ""
    for other in NEAR.get(own, ()):
        yield Variant(f"{other} for {own}", {step.name: replace(step, op=find_op(other)) for step in curves})


def gate_and_up_swapped(program: Program) -> Iterator[Variant]:
    """The two products exchanged, or what is done with them: the same numbers after it."""
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


def _rescaled(program: Program, factor: float) -> dict[str, Step]:
    """The steps that make scores, with another factor than 1/√D."""
    return {
        step.name: replace(step, attrs=step.attrs | {"scale": step.attrs["scale"] * factor})
        for step in program.steps("einsum", ".scores")
        if factor != 1.0
    }


def _scale(factor: Callable[[int, int], float]) -> Mistake:
    """Scores with a factor too many, which depends on the width of a head and that of the model."""

    def mistake(program: Program) -> Iterator[Variant]:
        q, stream = program.tape.values.get("blocks.0.attn.q"), program.tape.values.get("embedded")
        if q is None or stream is None:
            return
        if steps := _rescaled(program, factor(q.shape[-1], stream.shape[-1])):
            yield Variant("", steps)

    return mistake


@_each
def heads_in_turn(step: Step, tape: Tape) -> Step | None:
    """Query head h on key head h % K: keys and values repeated as a whole where each should be repeated."""
    spec = MIXED if step.op is running_mix else step.attrs.get("spec", "")
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

    return _with(step, forward)


@_each
def softmax_down_the_columns(step: Step, tape: Tape) -> Step | None:
    def forward(x: Any) -> Any:
        powers = np.exp(x - x.max(axis=-2, keepdims=True))
        return powers / powers.sum(axis=-2, keepdims=True)

    return _with(step, forward) if step.op.name == "softmax" and tape[step.name].ndim > 1 else None


# ---- weights and sums


def _transposed(ending: str) -> Mistake:
    """The first square matrix among the operands of each such step, by its columns."""

    def change(step: Step, tape: Tape) -> Step | None:
        if step.op is not einsum or not step.name.endswith(ending):
            return None
        spec = parse(step.attrs["spec"])
        for i, (axes, name) in enumerate(zip(spec.inputs, step.inputs, strict=False)):
            shape = tape[name].shape
            if len(shape) == 2 and shape[0] == shape[1] > 1:
                terms = [written(axes[::-1] if i == j else other) for j, other in enumerate(spec.inputs)]
                rest = step.attrs["spec"][len(",".join(map(written, spec.inputs))) :]
                return replace(step, attrs=step.attrs | {"spec": ",".join(terms) + rest})
        return None

    return _each(change)


@_each
def no_biases(step: Step, tape: Tape) -> Step | None:
    if step.op is not einsum or not step.inputs[-1].endswith(".bias"):
        return None
    spec = parse(step.attrs["spec"])
    without = f"{','.join(map(written, spec.inputs))}->{written(spec.result)}"
    return replace(step, inputs=step.inputs[:-1], attrs=step.attrs | {"spec": without})


def unembedding(program: Program) -> Iterator[Variant]:
    """Tied read as untied, where a loader makes up the matrix that it misses; untied read as tied."""
    tape = program.tape
    if "embed.weight" not in tape:
        return
    for step in tape.steps.values():
        if step.name in ("logits", "unembedded") and step.op is einsum:
            if "unembed.weight" in step.inputs:
                inputs = tuple("embed.weight" if n == "unembed.weight" else n for n in step.inputs)
                yield Variant("tied for untied", {step.name: replace(step, inputs=inputs)})
            else:
                made = np.random.default_rng(0).standard_normal(tape["embed.weight"].shape, np.float32)
                inputs = tuple("made-up" if n == "embed.weight" else n for n in step.inputs)
                table = np.multiply(made, 0.02, dtype=np.float64)
                yield Variant(
                    "untied for tied", {step.name: replace(step, inputs=inputs)}, {"made-up": table}
                )


@_each
def embedding_scaled(step: Step, tape: Tape) -> Step | None:
    if step.name != "embedded":
        return None
    width = tape[step.name].shape[-1]
    return _with(step, lambda rows, ids: step.op.forward(rows, ids) * width**0.5)


def _lost_branch(which: int) -> Mistake:
    def change(step: Step, tape: Tape) -> Step | None:
        if step.op is not add or len(step.inputs) < 2:
            return None
        lost = which % len(step.inputs)
        return replace(step, inputs=tuple(name for i, name in enumerate(step.inputs) if i != lost))

    return _each(change)


@_each
def wrong_sign(step: Step, tape: Tape) -> Step | None:
    return replace(step, attrs=step.attrs | {"lr": -step.attrs["lr"]}) if "lr" in step.attrs else None


CONVENTIONS: dict[str, Mistake] = {
    "RoPE layout": rope_layout,
    "RoPE base smaller": rope_base(0.1),
    "RoPE base larger": rope_base(10.0),
    "RoPE rotated the other way": rope_backwards,
    "learned positions counted from 1": positions_from_one,
    "mask one token ahead": mask_one_ahead,
    "no mask": no_mask,
    "mask's pattern left out": mask_plain,
    "RoPE's scaling left out": rope_unscaled,
    "bias of distances left out": no_bias_of_distance,
    "norm of the embedding left out": _norm_omitted("embed_norm"),
    "norms of queries and keys left out": _norm_omitted("q_norm", "k_norm"),
    "soft cap of scores left out": _cap_omitted("capped"),
    "soft cap of logits left out": _cap_omitted("logits"),
    "norm": norm_kind,
    "norm eps": norm_eps,
    "norm gain read as 1 + γ": norm_gain,
    "activation": activation,
    "gate and up swapped": gate_and_up_swapped,
    "scores without 1/√D": _scale(lambda head, stream: head**0.5),
    "scores with 1/D": _scale(lambda head, stream: head**-0.5),
    "scores with 1/√C": _scale(lambda head, stream: (head / stream) ** 0.5),
    "query heads dealt out in turn, h % K": heads_in_turn,
    "output matrix transposed": _transposed("attn_out"),
    "biases left out": no_biases,
    "unembedding": unembedding,
    "embedding multiplied by √C": embedding_scaled,
}
"""Other readings of the same weights: each loads without complaint."""

SLIPS: dict[str, Mistake] = {
    "matrix transposed": _transposed(""),
    "variance divided by N − 1": sample_variance,
    "eps outside the root": eps_outside_the_root,
    "softmax down the columns": softmax_down_the_columns,
    "first branch of the sum lost": _lost_branch(0),
    "last branch of the sum lost": _lost_branch(-1),
    "gradient followed upwards instead of downwards": wrong_sign,
}
"""Wrong arithmetic in a step, which no convention has."""

MISTAKES = CONVENTIONS | SLIPS


def describe(mistake: str, variant: Variant) -> str:
    """A mistake and what stands for what in it: "norm eps: 1e-06 for 1e-05"."""
    return f"{mistake}: {variant.note}" if variant.note else mistake


def diagnose(tape: Tape, name: str, answer: Array, tolerance: float = 1e-9) -> list[str]:
    """The mistakes that would give this answer for a step, from the tape's own inputs."""
    name = tape.resolve(name)
    return [
        mistake
        for mistake in MISTAKES
        if any(
            find_mismatch(name, np.asarray(answer), made, tolerance) is None
            and find_mismatch(name, made, tape[name], tolerance) is not None
            for made in _made(tape, name, mistake)
        )
    ]


def planted(tape: Tape, name: str, mistake: str) -> dict[str, Array]:
    """Every value of the same program with one mistake in one step."""
    for made in _made(tape, name, mistake):
        return tape.rerun({name: made})
    raise ValueError(f"{mistake!r} does not apply to {name!r}")


def _made(tape: Tape, name: str, mistake: str) -> Iterator[Array]:
    """What one step gives with the mistake in it, by each variant."""
    for variant in MISTAKES[mistake](Program(tape)):
        if name in variant.steps:
            yield variant.steps[name].run(tape.values | dict(variant.tables))

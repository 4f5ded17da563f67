"""Mistakes in products with weights, in sums of branches, and in the MLP: the activation, its derivative, the
gate and the up-projection."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from pellucid.reference.op import each
from pellucid.reference.ops import find_op
from pellucid.reference.ops.arithmetic import add
from pellucid.reference.ops.einsum import einsum, format_axes, parse
from pellucid.reference.tape import Step, Tape
from pellucid.verification.mistakes.variant import (
    Mistake,
    Program,
    Variant,
    base_name,
    in_every_step,
    pass_through,
    read_instead,
    replace_forward,
)


def transpose(ending: str) -> Mistake:
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

    return in_every_step(change)


@in_every_step
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


@in_every_step
def scale_embedding(step: Step, tape: Tape) -> Step | None:
    if step.name != "embedded":
        return None
    width = tape[step.name].shape[-1]
    return replace_forward(step, lambda rows, ids: step.op.forward(rows, ids) * width**0.5)


def drop_branch(which: int) -> Mistake:
    def change(step: Step, tape: Tape) -> Step | None:
        if step.op is not add or len(step.inputs) < 2:
            return None
        lost = which % len(step.inputs)
        return replace(step, inputs=tuple(name for i, name in enumerate(step.inputs) if i != lost))

    return in_every_step(change)


# ---- in one step of a worksheet


def _is_mean(step: Step) -> bool:
    return base_name(step.name).rpartition(".")[2] == "mean" or base_name(step.name) in (
        "loss",
        "uniform_nll",
    )


def change_factor(new: Callable[[float], float]) -> Mistake:
    """Returns the mistake of another factor in a product that has one, except in scores and means."""

    def change(step: Step, tape: Tape) -> Step | None:
        scale = step.attrs.get("scale", 1.0)
        is_scores = base_name(step.name).endswith(".scores") and step.phase == "fwd"
        is_from_loss = base_name(step.inputs[0]) == "d.loss"
        if step.op is not einsum or abs(scale) == 1 or is_scores or is_from_loss or _is_mean(step):
            return None
        return replace(step, attrs=step.attrs | {"scale": new(scale)})

    return in_every_step(change)


@in_every_step
def sum_for_mean(step: Step, tape: Tape) -> Step | None:
    if step.op is not einsum or not _is_mean(step) or step.attrs.get("scale", 1.0) == 1:
        return None
    return replace(step, attrs=step.attrs | {"scale": 1.0})


@in_every_step
def transpose_gradient(step: Step, tape: Tape) -> Step | None:
    shape = tape[step.name].shape
    if step.op is not einsum or step.phase != "bwd" or not base_name(step.name).endswith(".weight"):
        return None
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] == 1:
        return None
    terms = step.attrs["spec"].partition("->")[0]
    transposed = format_axes(parse(step.attrs["spec"]).result[::-1])
    return replace(step, attrs=step.attrs | {"spec": f"{terms}->{transposed}"})


NEAR = {
    "silu": ("gelu", "gelu_tanh", "relu", "sigmoid"),
    "gelu": ("gelu_tanh", "silu", "relu"),
    "gelu_tanh": ("gelu", "silu", "relu"),
    "relu": ("gelu", "gelu_tanh", "silu", "relu_squared"),
    "relu_squared": ("relu",),
}
"""The activations that each is mistaken for, the likeliest first."""
ACTIVATIONS = {*NEAR, "sigmoid", "tanh"}


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


# ---- in one step of a worksheet


@in_every_step
def omit_activation(step: Step, tape: Tape) -> Step | None:
    """Returns the activation as its input, or a step that reads that input in place of the activation."""
    if step.phase != "fwd":
        return None
    if base_name(step.name).endswith(".mlp.act"):
        return pass_through(step, step.inputs[0])
    for name in step.inputs:
        if base_name(name).endswith(".mlp.act") and name in tape.steps:
            return read_instead(step, name, tape.steps[name].inputs[0])
    return None


def _is_derivative(step: Step) -> bool:
    return step.phase == "bwd" and step.op.name.removesuffix("_back") in ACTIVATIONS and len(step.inputs) == 2


@in_every_step
def omit_derivative(step: Step, tape: Tape) -> Step | None:
    return pass_through(step, step.inputs[1]) if _is_derivative(step) else None


@in_every_step
def use_activation_as_derivative(step: Step, tape: Tape) -> Step | None:
    if not _is_derivative(step):
        return None
    curve = find_op(step.op.name.removesuffix("_back"))
    forward = curve.shown or curve.forward
    return replace_forward(step, lambda x, dy: forward(x) * dy, each)

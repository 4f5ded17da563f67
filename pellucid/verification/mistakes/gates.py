"""Mistakes in the MLP: the activation, its derivative, the gate and the up-projection."""

from collections.abc import Iterator
from dataclasses import replace

from pellucid.reference.op import each
from pellucid.reference.ops import find_op
from pellucid.reference.tape import Step, Tape
from pellucid.verification.mistakes.variant import (
    Program,
    Variant,
    base_name,
    in_every_step,
    pass_through,
    read_instead,
    replace_forward,
)

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

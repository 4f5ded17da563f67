"""Mistakes in the MLP: another activation, the gate and the up-projection swapped."""

from collections.abc import Iterator
from dataclasses import replace

from pellucid.judge.mistakes.variant import Program, Variant
from pellucid.reference.ops import find_op
from pellucid.reference.tape import Step

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

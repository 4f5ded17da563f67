"""Mistakes in products with weights and in sums of branches."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from pellucid.reference.ops.arithmetic import add
from pellucid.reference.ops.einsum import einsum, format_axes, parse
from pellucid.reference.tape import Step, Tape
from pellucid.verification.mistakes.variant import (
    Mistake,
    Program,
    Variant,
    base_name,
    in_every_step,
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

"""Mistakes in norms and soft caps."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pellucid.reference.ops.arithmetic import add, scaled_sum
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


def omit_norm(*names: str) -> Mistake:
    """Returns the mistake by which the steps after a norm read what the norm reads."""

    def mistake(program: Program) -> Iterator[Variant]:
        tape, steps = program.tape, {}
        for step in program.steps("einsum", ".out"):
            scope = step.name.removesuffix(".out")
            if scope.rpartition(".")[2] in names:
                first = tape.steps.get(f"{scope}.centered", tape.steps[f"{scope}.normed"])
                steps[step.name] = pass_through(step, first.inputs[0])
        if steps:
            yield Variant("", steps)

    return mistake


def omit_cap(ending: str) -> Mistake:
    return in_every_step(
        lambda step, tape: (
            pass_through(step, step.inputs[0])
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
            plain[mean.name] = pass_through(mean, mean.inputs[0])
        elif f"{scope}.normed" in tape.steps:
            centered[step.name] = replace_forward(
                step, lambda x, eps, right=step.op: right.forward(_subtract_mean(x), eps)
            )
            centered[f"{scope}.normed"] = replace_forward(
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


@in_every_step
def add_one_to_gain(step: Step, tape: Tape) -> Step | None:
    if step.op.name != "einsum" or not step.name.endswith("norm.out") or len(step.inputs) < 2:
        return None
    return replace_forward(
        step, lambda x, gain, *shift, **attrs: step.op.forward(x, gain + 1.0, *shift, **attrs)
    )


@in_every_step
def divide_by_n_minus_one(step: Step, tape: Tape) -> Step | None:
    def forward(x: Any, eps: float) -> Any:
        return ((x**2).sum(axis=-1, keepdims=True) / max(x.shape[-1] - 1, 1) + eps) ** -0.5

    return replace_forward(step, forward) if step.op.name == "rstd" else None


@in_every_step
def add_eps_outside_root(step: Step, tape: Tape) -> Step | None:
    def forward(x: Any, eps: float) -> Any:
        return 1 / ((x**2).mean(axis=-1, keepdims=True) ** 0.5 + eps)

    return replace_forward(step, forward) if step.op.name == "rstd" else None


@in_every_step
def take_residual_after_norm(step: Step, tape: Tape) -> Step | None:
    """Returns a sum norm(x) + f(norm(x)), where the norm is of the layer's input: x + f(norm(x)) is meant."""
    if step.op not in (add, scaled_sum) or step.phase != "fwd" or len(step.inputs) < 2:
        return None
    scope = step.name.rpartition(".")[0]
    for norm in (f"{scope}.attn_norm.out", f"{scope}.mlp_norm.out"):
        if norm in tape.steps and _find_norm_input(norm, tape) == step.inputs[0]:
            return read_instead(step, step.inputs[0], norm)
    return None


# ---- in one step of a worksheet


def _find_norm_input(name: str, tape: Tape) -> str | None:
    """Returns what the norm reads that computes this value, None where it is not a norm's."""
    scope, _, last = name.rpartition(".")
    update = name[len(base_name(name)) :]
    if base_name(last) not in ("normed", "out"):
        return None
    for first in ("centered", "normed"):
        if step := tape.steps.get(f"{scope}.{first}{update}"):
            return step.inputs[0]
    return None


@in_every_step
def read_before_norm(step: Step, tape: Tape) -> Step | None:
    for name in step.inputs:
        if step.phase == "fwd" and (before := _find_norm_input(name, tape)):
            return read_instead(step, name, before)
    return None


@in_every_step
def keep_mean(step: Step, tape: Tape) -> Step | None:
    if base_name(step.name).endswith(".centered") and step.phase == "fwd":
        return pass_through(step, step.inputs[0])
    for name in step.inputs:
        if base_name(name).endswith(".centered") and step.phase == "fwd":
            return read_instead(step, name, tape.steps[name].inputs[0])
    return None

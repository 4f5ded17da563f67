"""Mistakes in the update of a parameter."""

from dataclasses import replace

from pellucid.judge.mistakes.variant import in_every_step
from pellucid.reference.tape import Step, Tape


@in_every_step
def flip_update_sign(step: Step, tape: Tape) -> Step | None:
    return replace(step, attrs=step.attrs | {"lr": -step.attrs["lr"]}) if "lr" in step.attrs else None

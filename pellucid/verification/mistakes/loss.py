"""Mistakes in the loss and in its gradient."""

from dataclasses import replace

from pellucid.reference.op import each
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.losses import mean_squared_error_back
from pellucid.reference.tape import Step, Tape
from pellucid.verification.mistakes.variant import base_name, in_every_step, replace_forward


@in_every_step
def omit_share_of_mean_loss(step: Step, tape: Tape) -> Step | None:
    """Returns the gradient of each position's loss as 1 in place of 1/n."""
    if step.op is not einsum or base_name(step.inputs[0]) != "d.loss":
        return None
    return replace(step, attrs=step.attrs | {"scale": 1.0}) if step.attrs.get("scale", 1.0) != 1 else None


@in_every_step
def omit_two_of_squared_error(step: Step, tape: Tape) -> Step | None:
    if step.op is not mean_squared_error_back:
        return None
    return replace_forward(step, lambda y, target, dy, samples: (y - target) * dy / samples, each)


@in_every_step
def omit_uniform_part(step: Step, tape: Tape) -> Step | None:
    if base_name(step.name) != "smoothed":
        return None
    return replace_forward(step, lambda nll, uniform, share: (1 - share) * nll, each)

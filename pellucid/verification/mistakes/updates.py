"""Mistakes in the loss, in its gradient and in the update of a parameter."""

from dataclasses import replace
from typing import Any

import numpy as np

from pellucid.reference.op import each
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.losses import mean_squared_error_back
from pellucid.reference.ops.updates import accumulate, adam, adamw, ema
from pellucid.reference.tape import Step, Tape
from pellucid.verification.mistakes.variant import base_name, in_every_step, read_instead, replace_forward


@in_every_step
def flip_update_sign(step: Step, tape: Tape) -> Step | None:
    return replace(step, attrs=step.attrs | {"lr": -step.attrs["lr"]}) if "lr" in step.attrs else None


# ---- in one step of a worksheet


@in_every_step
def omit_learning_rate(step: Step, tape: Tape) -> Step | None:
    if step.attrs.get("lr", 1.0) == 1:
        return None
    return replace(step, attrs=step.attrs | {"lr": 1.0})


@in_every_step
def read_weight_before_update(step: Step, tape: Tape) -> Step | None:
    """Returns a step after an update that reads the first weight that the update has changed as it was."""
    for name in step.inputs:
        if step.phase != "upd" and name in tape.steps and tape.steps[name].phase == "upd":
            return read_instead(step, name, tape.steps[name].inputs[0])
    return None


@in_every_step
def omit_clipping(step: Step, tape: Tape) -> Step | None:
    for name in step.inputs:
        if base_name(name).endswith(".clipped") and name in tape.steps:
            return read_instead(step, name, tape.steps[name].inputs[0])
    return None


@in_every_step
def clip_by_own_norm(step: Step, tape: Tape) -> Step | None:
    clip = tape.steps.get(step.inputs[-1])
    if not base_name(step.name).endswith(".clipped") or clip is None or "limit" not in clip.attrs:
        return None
    limit = clip.attrs["limit"]

    def forward(g: Any, **_: Any) -> Any:
        return g * (limit / np.maximum(np.sqrt((g**2).sum()), limit))

    return replace_forward(replace(step, inputs=step.inputs[:1]), forward)


def _is_adam(step: Step) -> bool:
    return step.op in (adam, adamw)


@in_every_step
def omit_bias_correction(step: Step, tape: Tape) -> Step | None:
    def forward(w: Any, m: Any, v: Any, lr: float, eps: float, decay: float = 0.0, **_: Any) -> Any:
        change = m / (np.sqrt(v) + eps)
        return w - lr * (change + decay * w if decay else change)

    return replace_forward(step, forward, each) if _is_adam(step) else None


@in_every_step
def omit_root(step: Step, tape: Tape) -> Step | None:
    def forward(w: Any, m: Any, v: Any, t: int, beta1: float, beta2: float, **settings: Any) -> Any:
        lr, eps, decay = settings["lr"], settings["eps"], settings.get("decay", 0.0)
        change = m / (1 - beta1**t) / (v / (1 - beta2**t) + eps)
        return w - lr * (change + decay * w if decay else change)

    return replace_forward(step, forward, each) if _is_adam(step) else None


@in_every_step
def decay_in_gradient(step: Step, tape: Tape) -> Step | None:
    """Returns a moment of AdamW of the gradient plus λ w: the weight decay of Adam with L2."""
    weight, _, k = step.name.rpartition("@")
    update = tape.steps.get(f"{weight.rpartition('.')[0]}@{k}")
    if step.op is not ema or update is None or update.op is not adamw or not update.attrs["decay"]:
        return None
    decay = update.attrs["decay"]

    def forward(old: Any, g: Any, w: Any, **attrs: Any) -> Any:
        return ema.forward(old, g + decay * w, **attrs)

    return replace_forward(replace(step, inputs=(*step.inputs, update.inputs[0])), forward, each)


@in_every_step
def accumulate_for_average(step: Step, tape: Tape) -> Step | None:
    if step.op is not ema or step.attrs.get("power", 1) != 1 or not base_name(step.name).endswith(".m"):
        return None
    return replace_forward(step, lambda old, g, beta, **_: beta * old + g, each)


@in_every_step
def average_for_accumulate(step: Step, tape: Tape) -> Step | None:
    if step.op is not accumulate:
        return None
    return replace_forward(step, lambda old, g, beta: beta * old + (1 - beta) * g, each)


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

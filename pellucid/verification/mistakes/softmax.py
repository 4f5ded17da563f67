"""Mistakes in the softmax."""

from typing import Any

import numpy as np

from pellucid.reference.op import each
from pellucid.reference.ops.softmax import softmax_back
from pellucid.reference.tape import Step, Tape
from pellucid.verification.mistakes.variant import in_every_step, replace_forward


@in_every_step
def apply_softmax_over_queries(step: Step, tape: Tape) -> Step | None:
    def forward(x: Any) -> Any:
        powers = np.exp(x - x.max(axis=-2, keepdims=True))
        return powers / powers.sum(axis=-2, keepdims=True)

    return replace_forward(step, forward) if step.op.name == "softmax" and tape[step.name].ndim > 1 else None


# ---- in one step of a worksheet


@in_every_step
def omit_sum_in_gradient(step: Step, tape: Tape) -> Step | None:
    return replace_forward(step, lambda p, dp: p * dp, each) if step.op is softmax_back else None


@in_every_step
def keep_diagonal_of_jacobian(step: Step, tape: Tape) -> Step | None:
    return replace_forward(step, lambda p, dp: p * (1 - p) * dp, each) if step.op is softmax_back else None

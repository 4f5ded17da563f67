"""Named mistakes: the wrong versions of a step that people (and programs) really make.

They never touch the specification. Each takes a step and somebody's values and gives what the mistake
would give, or None where it does not apply; `diagnose` finds the one that explains a wrong answer, and
the tests plant them to show that they are caught.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pellucid.explain.compare import departure
from pellucid.reference.op import Array
from pellucid.reference.tape import Step, Tape

Values = Mapping[str, Array]
Wrong = Callable[[Step, Values], Array | None]


def _rerun(step: Step, values: Values, *inputs: Array, **attrs: Any) -> Array:
    given = inputs or tuple(values[name] for name in step.inputs)
    return np.asarray(step.op.forward(*given, **(step.attrs | attrs)))


def no_scale(step: Step, values: Values) -> Array | None:
    return _rerun(step, values, scale=1.0) if step.attrs.get("scale", 1.0) != 1.0 else None


def scale_squared(step: Step, values: Values) -> Array | None:
    scale = step.attrs.get("scale", 1.0)
    return _rerun(step, values, scale=scale**2) if scale != 1.0 else None


def mask_one_off(step: Step, values: Values) -> Array | None:
    if step.op.name != "mask":
        return None
    scores, allowed = (values[name] for name in step.inputs)
    ahead = np.concatenate([np.ones_like(allowed[..., :1]), allowed[..., :-1]], axis=-1)
    return _rerun(step, values, scores, ahead)


def no_mask(step: Step, values: Values) -> Array | None:
    return values[step.inputs[0]] if step.op.name == "mask" else None


def transposed(step: Step, values: Values) -> Array | None:
    """The first square matrix among the operands, turned over."""
    if step.op.name != "einsum":
        return None
    inputs = [values[name] for name in step.inputs]
    for i, x in enumerate(inputs):
        if x.ndim == 2 and x.shape[0] == x.shape[1] > 1:
            return _rerun(step, values, *(y.T if j == i else y for j, y in enumerate(inputs)))
    return None


def sample_variance(step: Step, values: Values) -> Array | None:
    if step.op.name != "rstd":
        return None
    x = values[step.inputs[0]]
    return np.asarray(((x**2).sum(-1, keepdims=True) / max(x.shape[-1] - 1, 1) + step.attrs["eps"]) ** -0.5)


def eps_outside_the_root(step: Step, values: Values) -> Array | None:
    if step.op.name != "rstd":
        return None
    x = values[step.inputs[0]]
    return np.asarray(1 / (np.sqrt((x**2).mean(-1, keepdims=True)) + step.attrs["eps"]))


def softmax_down_the_columns(step: Step, values: Values) -> Array | None:
    if step.op.name != "softmax":
        return None
    x = values[step.inputs[0]]
    if x.ndim < 2:
        return None
    return np.swapaxes(_rerun(step, values, np.swapaxes(x, -1, -2)), -1, -2)


def lost_first_branch(step: Step, values: Values) -> Array | None:
    return _lost_branch(step, values, 0)


def lost_last_branch(step: Step, values: Values) -> Array | None:
    return _lost_branch(step, values, len(step.inputs) - 1)


def _lost_branch(step: Step, values: Values, which: int) -> Array | None:
    if step.op.name != "add" or len(step.inputs) < 2:
        return None
    return _rerun(step, values, *(values[name] for i, name in enumerate(step.inputs) if i != which))


def wrong_sign(step: Step, values: Values) -> Array | None:
    return _rerun(step, values, lr=-step.attrs["lr"]) if "lr" in step.attrs else None


MISTAKES: dict[str, Wrong] = {
    "left out the factor": no_scale,
    "used the factor squared (1/D for 1/√D)": scale_squared,
    "let each position see one too far": mask_one_off,
    "left out the mask": no_mask,
    "used the matrix transposed": transposed,
    "divided by N − 1 in the variance": sample_variance,
    "put eps outside the root": eps_outside_the_root,
    "took the softmax down the columns": softmax_down_the_columns,
    "lost the first branch of the sum": lost_first_branch,
    "lost the last branch of the sum": lost_last_branch,
    "went up the slope instead of down": wrong_sign,
}


def diagnose(tape: Tape, name: str, answer: Array, tolerance: float = 1e-9) -> list[str]:
    """The mistakes that would give this answer for a step, from the tape's own inputs."""
    step = tape.steps[tape.resolve(name)]
    return [
        mistake
        for mistake, wrong in MISTAKES.items()
        if (made := wrong(step, tape.values)) is not None
        and departure(name, np.asarray(answer), made, tolerance) is None
        and departure(name, made, tape[name], tolerance) is not None
    ]


def planted(tape: Tape, name: str, mistake: str) -> dict[str, Array]:
    """Every value of the same program with one mistake in one step."""
    made = MISTAKES[mistake](tape.steps[name], tape.values)
    if made is None:
        raise ValueError(f"{mistake!r} does not apply to {name!r}")
    return tape.rerun({name: made})

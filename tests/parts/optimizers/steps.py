"""Some updates of one matrix by a kind of the specification and by an optimizer of torch, side by side."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from pellucid.parts.optimizers import OptimizerConfig
from pellucid.reference.op import Array
from pellucid.reference.ops.arithmetic import power
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.optimizers import update
from pellucid.reference.tape import Tape

NAME = "blocks.0.mlp.up_proj.weight"
START = np.random.default_rng(0).normal(size=(3, 4))


def ours(part: OptimizerConfig, count: int, start: Array = START, name: str = NAME) -> list[Array]:
    """The parameter after each update, where the loss is Σ x⁴ / 4 and the gradient x³."""
    at, state, found = start, dict[str, Array](), []
    for k in range(1, count + 1):
        tape = Tape()
        fourth = tape("fourth", power, tape.parameter(name, at), exponent=4)
        letters = "ab"[: start.ndim]
        tape.backward(tape("loss", einsum, fourth, spec=f"{letters}->", scale=0.25))
        update(tape, part, k, state=state)
        at, state = tape[f"{name}@{k}"], dict(tape.values)
        found.append(at)
    return found


def theirs(
    make: Callable[[list[torch.Tensor]], torch.optim.Optimizer], count: int, start: Array = START
) -> list[Any]:
    at = torch.tensor(start)
    optimizer, found = make([at]), []
    for _ in range(count):
        at.grad = at**3
        optimizer.step()
        found.append(at.numpy().copy())
    return found

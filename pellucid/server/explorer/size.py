"""The size of a run before it is computed: its steps and the bytes of its values.

The same program is run on zeros with few channels, heads and tokens, once with one block and once with two:
blocks are alike, so that any number of them follows, and the axes of a value say how large it really is.
"""

import functools
import math
import re
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pellucid.config import ModelConfig
from pellucid.explanation.shapes import grow, shrink
from pellucid.explanation.trace import Trace
from pellucid.explanation.tracing import read_update
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward, train

TOKENS = 3
"""Tokens of the small run."""
_OF_PARAMETER = re.compile(r"(?:d\.)?(.*?(?:weight|bias))(?:[.@].*)?")
"""d.X, d.X.via.Y, X@1 and X.m@1 of a parameter X."""


class RunSize(NamedTuple):
    """The number of steps, and the bytes of all values but the parameters, which the session holds anyway."""

    steps: int
    bytes: int

    def plus(self, other: "RunSize", times: int = 1) -> "RunSize":
        return RunSize(self.steps + times * other.steps, self.bytes + times * other.bytes)


def estimate_size(
    config: ModelConfig,
    tokens: int,
    *,
    has_target: bool = False,
    backward: bool = False,
    update: str | None = None,
    updates: int = 1,
) -> RunSize:
    """Returns the size of a run on that many tokens.

    >>> from pellucid.config import preset
    >>> estimate_size(preset("gpt2"), tokens=8, has_target=True, backward=True)
    RunSize(steps=862, bytes=1660377616)
    """
    run = (has_target or backward or update is not None, backward, update)
    first, second = (
        _sum_run([_sum_sizes(tape, config, tokens) for tape in _run_small(config, layers, *run)], updates)
        for layers in (1, 2)
    )
    return first.plus(second.plus(first, -1), config.n_layer - 1)


def _sum_run(sizes: list[RunSize], updates: int) -> RunSize:
    """Returns the size of the last tape, and of the one before it for each update."""
    return sizes[-1].plus(sizes[0], updates) if len(sizes) > 1 else sizes[0]


@functools.lru_cache(16)
def _run_small(
    config: ModelConfig, layers: int, has_target: bool, backward: bool, update: str | None
) -> list[Tape]:
    """Returns the tape of the small run; with an update, that of the update and the one after it."""
    small = replace(shrink(config), n_layer=layers)
    weights = {name: np.ones(shape) for name, shape in small.parameters().items()}
    ids = np.zeros((1, min(TOKENS, config.context_length)), dtype=int)
    inputs = (small, weights, ids, ids if has_target else None)
    with np.errstate(all="ignore"):  # the numbers are not used
        if request := read_update(update, 1, None, (), (), None, {}):
            return train(*inputs, request[0], 1, **request[1])
        tape = forward(*inputs)
        if backward:
            tape.backward(tape.ref("loss"))
    return [tape]


def _sum_sizes(tape: Tape, config: ModelConfig, tokens: int) -> RunSize:
    trace, shapes = Trace(tape), config.parameters()
    numbers = 0
    for name, role in tape.roles.items():
        of = _OF_PARAMETER.sub(r"\1", name)
        if of in shapes and role in ("grad", "update"):  # a gradient, a moment or a new value of a parameter
            numbers += math.prod(shapes[of])
        elif role != "param":
            numbers += math.prod(grow(trace, name, config, 1, tokens))
    return RunSize(len(tape.steps), 8 * numbers)


def find_most_tokens(config: ModelConfig, most_bytes: int) -> int:
    """Returns the largest number of tokens of which the values of a forward pass take at most that many
    bytes."""
    least, most = 1, config.context_length
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (
            (middle, most) if estimate_size(config, middle).bytes <= most_bytes else (least, middle - 1)
        )
    return least

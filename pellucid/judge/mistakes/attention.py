"""Mistakes in the attention scores: their scale, the mask, and which key head a query head reads."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from pellucid.judge.mistakes.variant import (
    Mistake,
    Program,
    Variant,
    in_every_step,
    replace_forward,
    replace_table,
)
from pellucid.reference.op import Array
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.online_softmax import WEIGHTED_SUM, running_output
from pellucid.reference.tape import Step, Tape


def _causal_mask(mask: Array) -> Array:
    queries, keys = mask.shape[-2:]
    return np.broadcast_to(np.tril(np.ones((queries, keys)), keys - queries), mask.shape)


def shift_mask(program: Program) -> Iterator[Variant]:
    mask = program.tape.values.get("mask")
    if mask is not None and (mask <= _causal_mask(mask)).all():
        ahead = np.concatenate([np.ones_like(mask[..., :1]), mask[..., :-1]], axis=-1)
        yield replace_table(program, "mask", ahead)


def omit_mask(program: Program) -> Iterator[Variant]:
    mask = program.tape.values.get("mask")
    if mask is not None:
        yield replace_table(program, "mask", np.ones_like(mask))


def use_causal_mask(program: Program) -> Iterator[Variant]:
    """Yields the causal mask in place of a narrower one."""
    mask = program.tape.values.get("mask")
    if (
        mask is not None
        and not np.array_equal(mask, _causal_mask(mask))
        and (mask <= _causal_mask(mask)).all()
    ):
        yield replace_table(program, "mask", _causal_mask(mask))


def rescale_scores(program: Program, factor: float) -> dict[str, Step]:
    """Returns the steps that compute scores, with another factor than 1/√D."""
    return {
        step.name: replace(step, attrs=step.attrs | {"scale": step.attrs["scale"] * factor})
        for step in program.steps("einsum", ".scores")
        if factor != 1.0
    }


def change_scale(factor: Callable[[int, int], float]) -> Mistake:
    """Returns the mistake of one factor too many in the scores; it depends on d_head and d_model."""

    def mistake(program: Program) -> Iterator[Variant]:
        q, stream = program.tape.values.get("blocks.0.attn.q"), program.tape.values.get("embedded")
        if q is None or stream is None:
            return
        if steps := rescale_scores(program, factor(q.shape[-1], stream.shape[-1])):
            yield Variant("", steps)

    return mistake


@in_every_step
def interleave_key_heads(step: Step, tape: Tape) -> Step | None:
    """Query head h reads key head h % K: `repeat` of all keys and values, for `repeat_interleave`."""
    spec = WEIGHTED_SUM if step.op is running_output else step.attrs.get("spec", "")
    if "(kg)" not in spec:
        return None
    heads = {tape[name].shape[1] for name in step.inputs if tape[name].ndim == 4}
    if len(heads - {1}) < 2:
        return None
    wrong = spec.replace("(kg)", "(gk)")
    if step.op is einsum:
        return replace(step, attrs=step.attrs | {"spec": wrong})

    def forward(powers: Any, values: Any, *before: Any) -> Any:
        new = einsum.forward(powers, values, spec=wrong)
        return before[0] * before[1] + new if before else new

    return replace_forward(step, forward)

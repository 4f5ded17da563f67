"""Mistakes in attention: the scale of the scores, the mask, rows, heads, the softmax, what a step reads."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from pellucid.base.dtypes import BY_NAME
from pellucid.parts.masks import MaskConfig
from pellucid.parts.masks.window import Window
from pellucid.reference.op import Array, each
from pellucid.reference.ops.einsum import einsum, parse, sizes_of
from pellucid.reference.ops.masks import mask as apply_mask
from pellucid.reference.ops.online_softmax import WEIGHTED_SUM, running_output
from pellucid.reference.ops.softmax import softmax_back
from pellucid.reference.tape import Step, Tape
from pellucid.verification.mistakes.variant import (
    Mistake,
    Program,
    Variant,
    base_name,
    in_every_reading,
    in_every_step,
    read_instead,
    replace_forward,
    replace_table,
)


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


def _find_window(program: Program) -> MaskConfig | None:
    """Returns the mask with a window that gives the table: the config's, or else the plain one."""
    mask = program.tape.values.get("mask")
    known = program.config.mask if program.config else None
    if mask is None or (np.array_equal(mask, _causal_mask(mask)) and not hasattr(known, "size")):
        return None
    window = known if hasattr(known, "size") else Window(int(mask.sum(axis=-1).max()))
    assert window is not None
    return window if np.array_equal(_compute_mask(window, mask), mask) else None


def _compute_mask(window: MaskConfig, like: Array) -> Array:
    keys = np.arange(like.shape[-1])
    return np.broadcast_to(window.compute_mask(keys[-like.shape[-2] :], keys), like.shape)


def miscount_window(program: Program) -> Iterator[Variant]:
    """Yields a window of one key more, and of one fewer: i − j ≤ size, or the query's own key not counted."""
    if (window := _find_window(program)) is None:
        return
    own = window.size  # type: ignore[attr-defined]
    for size in (own + 1, own - 1):
        wrong = _compute_mask(replace(window, size=size), program.tape["mask"])  # type: ignore[call-arg]
        if size and not np.array_equal(wrong, program.tape["mask"]):
            yield replace_table(program, "mask", wrong.astype(float), f"{size} for {own} keys")


FINITE_SCORES: dict[str, Callable[[Any], Any]] = {
    "−1e9 for −∞": lambda scores: -1e9,
    "−10,000 for −∞": lambda scores: -1e4,
    "−10,000 added for −∞": lambda scores: scores - 1e4,
    "the least float32 for −∞": lambda scores: -BY_NAME["float32"].largest,
}


def _hide_scores(hide: Callable[[Any], Any], note: str) -> Mistake:
    def forward(scores: Any, allowed: Any) -> Any:
        return np.where(allowed, scores, hide(scores))

    def change(step: Step, tape: Tape) -> Iterator[tuple[str, Step]]:
        if step.op is apply_mask:
            yield note, replace_forward(step, forward, step.op.reads)

    return in_every_reading(change)


def mask_with_finite_scores(program: Program) -> Iterator[Variant]:
    """Yields a large negative number in place of −∞, and one that is added to the score. They give the same
    pattern, except where a row has no key at all or scores are as large."""
    for note, hide in FINITE_SCORES.items():
        yield from _hide_scores(hide, note)(program)


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


# ---- in one step of a worksheet


def rescale_in_step(scale: Callable[[int, int], float]) -> Mistake:
    """Returns the mistake of another scale than 1/√D in the scores of every forward pass, also after an
    update; it depends on d_head and d_model."""

    def change(step: Step, tape: Tape) -> Step | None:
        if step.op is not einsum or not base_name(step.name).endswith(".scores") or step.phase != "fwd":
            return None
        new = float(scale(tape[step.inputs[0]].shape[-1], tape["embedded"].shape[-1]))
        return (
            None if new == step.attrs.get("scale", 1.0) else replace(step, attrs=step.attrs | {"scale": new})
        )

    return in_every_step(change)


def _read_scores(
    step: Step, tape: Tape, forward: Callable[[Any, Array], Any], masks: Callable[[Array], Array | None]
) -> Step | None:
    """Returns a softmax of masked scores as `forward(e^scores, mask)` with another mask, None for any other
    step. The mask multiplies the powers, so that a rule has no −∞."""
    masked = tape.steps.get(step.inputs[0]) if step.inputs else None
    if step.op.name != "softmax" or masked is None or masked.op.name != "mask":
        return None
    mask = masks(tape[masked.inputs[1]])
    if mask is None:
        return None
    return replace_forward(replace(step, inputs=masked.inputs[:1]), lambda s: forward(np.exp(s), mask))


def _normalize(powers: Any, axis: int = -1) -> Any:
    return powers / powers.sum(axis=axis, keepdims=True)


def _shift(mask: Array) -> Array | None:
    ahead = np.concatenate([np.ones_like(mask[..., :1]), mask[..., :-1]], axis=-1)
    return ahead if (mask <= _causal_mask(mask)).all() else None


@in_every_step
def omit_mask_in_softmax(step: Step, tape: Tape) -> Step | None:
    return _read_scores(step, tape, lambda powers, mask: _normalize(powers * mask), np.ones_like)


@in_every_step
def shift_mask_in_softmax(step: Step, tape: Tape) -> Step | None:
    return _read_scores(step, tape, lambda powers, mask: _normalize(powers * mask), _shift)


@in_every_step
def mask_after_softmax(step: Step, tape: Tape) -> Step | None:
    return _read_scores(step, tape, lambda powers, mask: _normalize(powers) * mask, np.array)


@in_every_step
def sum_over_queries(step: Step, tape: Tape) -> Step | None:
    if step.op.name != "softmax" or tape[step.name].ndim < 2:
        return None
    plain = replace_forward(step, lambda scores: _normalize(np.exp(scores), -2))
    return _read_scores(step, tape, lambda powers, mask: _normalize(powers * mask, -2), np.array) or plain


@in_every_reading
def read_other_projection(step: Step, tape: Tape) -> Iterator[tuple[str, Step]]:
    """Yields each product of queries, keys and values that reads another of them, where the shapes allow."""
    letters = {"q": "Q", "k": "K", "v": "V"}
    for name in step.inputs:
        scope, _, own = base_name(name).rpartition(".")
        for letter in letters:
            other = f"{scope}.{letter}{name[len(base_name(name)) :]}"
            is_own = step.op is einsum and own in letters and not name.startswith("d.")
            is_other = is_own and letter != own and other in tape.values
            if is_other and tape[other].shape == tape[name].shape:
                yield f"{letters[letter]} for {letters[own]}", read_instead(step, name, other)


@in_every_reading
def read_other_weights(step: Step, tape: Tape) -> Iterator[tuple[str, Step]]:
    """Yields queries, keys and values that are computed with another projection's matrix."""
    matrices = {"q_proj": "W_Q", "k_proj": "W_K", "v_proj": "W_V"}
    for name in step.inputs:
        own = next((part for part in base_name(name).split(".") if part in matrices), None)
        if step.op is not einsum or own is None or not base_name(name).endswith(".weight"):
            continue
        for projection, symbol in matrices.items():
            other = name.replace(f".{own}.", f".{projection}.")
            if other != name and other in tape.values and tape[other].shape == tape[name].shape:
                yield f"{symbol} for {matrices[own]}", read_instead(step, name, other)


def _find_square(step: Step, tape: Tape) -> int | None:
    """Returns which operand of a product is an array [… t s] with as many queries as keys."""
    if step.op is not einsum:
        return None
    for i, (axes, name) in enumerate(zip(parse(step.attrs["spec"]).inputs, step.inputs, strict=False)):
        if axes[-2:] == ("t", "s") and tape[name].shape[-1] == tape[name].shape[-2] > 1:
            return i
    return None


@in_every_reading
def repeat_last_row(step: Step, tape: Tape) -> Iterator[tuple[str, Step]]:
    """Yields the pattern's last row in place of each row; in a gradient it also stands as each column."""
    square = _find_square(step, tape)
    if square is None or not base_name(step.inputs[square]).endswith(".pattern"):
        return

    def forward(*operands: Any, as_columns: bool, **attrs: Any) -> Any:
        rows = operands[square]
        last = rows[..., -1, :, None] if as_columns else rows[..., -1:, :]
        equal = np.broadcast_to(last, rows.shape)
        return einsum.forward(*operands[:square], equal, *operands[square + 1 :], **attrs)

    for as_columns in (False, True) if step.phase == "bwd" else (False,):
        note = "as columns" if as_columns else "as rows"
        yield note, replace_forward(replace(step, attrs=step.attrs | {"as_columns": as_columns}), forward)


@in_every_step
def omit_transpose(step: Step, tape: Tape) -> Step | None:
    """Returns a gradient of keys or values in which queries and keys of the pattern change places."""
    square = _find_square(step, tape)
    if step.phase != "bwd" or square is None or "t" in parse(step.attrs["spec"]).result:
        return None
    terms, arrow, result = step.attrs["spec"].partition("->")
    wrong = [t[:-2] + "st" if i == square else t for i, t in enumerate(terms.split(","))]
    return replace(step, attrs=step.attrs | {"spec": ",".join(wrong) + arrow + result})


@in_every_step
def interleave_channels(step: Step, tape: Tape) -> Step | None:
    """Returns a regrouping by which head h has the channels c with c mod H = h."""
    if step.op is not einsum:
        return None
    for group, wrong in (("(hd)", "(dh)"), ("(kd)", "(dk)")):
        if group in step.attrs["spec"]:
            sizes = sizes_of(
                parse(step.attrs["spec"]).operands,
                [tape[name].shape for name in step.inputs],
                {key: size for key, size in step.attrs.items() if key not in ("spec", "scale")},
            )
            if sizes[group[1]] > 1 and sizes["d"] > 1:
                return replace(step, attrs=step.attrs | {"spec": step.attrs["spec"].replace(group, wrong)})
    return None


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

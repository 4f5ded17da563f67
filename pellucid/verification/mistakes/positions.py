"""Mistakes in what tells a model the position of a token: RoPE, learned positions, position biases."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pellucid.base.dtypes import BY_NAME
from pellucid.parts.positions.rope import Rope
from pellucid.reference.op import Array
from pellucid.reference.tape import Step, Tape
from pellucid.verification.mistakes.attention import rescale_scores
from pellucid.verification.mistakes.variant import (
    Mistake,
    Program,
    Variant,
    in_every_step,
    pass_through,
    replace_forward,
    replace_table,
)
from pellucid.verification.rounding import round_to


def swap_rope_layout(program: Program) -> Iterator[Variant]:
    rotations = [*program.steps("rotate")]
    own = rotations[0].attrs["layout"] if rotations else ""
    if other := {"halves": "pairs", "pairs": "halves"}.get(own):
        steps = {step.name: replace(step, attrs=step.attrs | {"layout": other}) for step in rotations}
        yield Variant(f"{other} for {own}", steps)


USUAL_BASES = (10_000.0, 100_000.0, 500_000.0, 1_000_000.0)


def _find_rope(program: Program) -> Rope | None:
    """Returns the RoPE of the table of angles: the config's, or else the plain one that gives this table."""
    angles = program.tape.values.get("angles")
    if angles is None or angles.ndim != 2 or angles.shape[-1] < 2 or not angles[-1, 1]:
        return None
    known = program.config.positions if program.config else None
    base = float(angles[-1, 0] / angles[-1, 1]) ** angles.shape[-1]
    rope = known if isinstance(known, Rope) else Rope(float(f"{base:.9g}"))
    return rope if np.allclose(_compute_angles(rope, angles), angles, rtol=1e-6) else None


def _compute_angles(rope: Rope, like: Array) -> Array:
    return rope.rotation(np.arange(len(like)), 2 * like.shape[-1]).angles


def change_rope_base(factor: float) -> Mistake:
    """Returns the mistake of another base, smaller or larger: ten times, or one that other models have."""

    def mistake(program: Program) -> Iterator[Variant]:
        if (rope := _find_rope(program)) is None:
            return
        usual = [base for base in USUAL_BASES if base != rope.base and (base > rope.base) == (factor > 1)]
        for base in dict.fromkeys([rope.base * factor, *usual]):
            wrong = _compute_angles(replace(rope, base=base), program.tape["angles"])
            yield replace_table(program, "angles", wrong, f"{base:,.0f} for {rope.base:,.0f}")

    return mistake


@in_every_step
def reverse_rotation(step: Step, tape: Tape) -> Step | None:
    if step.op.name != "rotate":
        return None
    return replace(step, attrs=step.attrs | {"direction": -step.attrs.get("direction", 1.0)})


def omit_rope_scaling(program: Program) -> Iterator[Variant]:
    """Yields RoPE without its scaling of the context, and without its attention scale."""
    rope = _find_rope(program)
    if rope is None or rope.kind == "rope":
        return
    plain = _compute_angles(Rope(rope.base, rope.layout), program.tape["angles"])
    variant = replace_table(program, "angles", plain, f"rope for {rope.kind}")
    yield replace(variant, steps={**rescale_scores(program, 1 / rope.attention_scale), **variant.steps})


def count_positions_from_one(program: Program) -> Iterator[Variant]:
    """Yields row p + 1 of the learned positions for position p."""
    rows = program.tape.values.get("positions.weight")
    if rows is not None and "position_ids" in program.tape:
        yield replace_table(program, "position_ids", (program.tape["position_ids"] + 1) % len(rows))


def shift_rotation(steps: str) -> Mistake:
    """Returns the mistake of positions counted from 1 in the rotations whose names have this ending."""

    def mistake(program: Program) -> Iterator[Variant]:
        if (rope := _find_rope(program)) is None:
            return
        like = program.tape["angles"]
        ahead = rope.rotation(np.arange(1, len(like) + 1), 2 * like.shape[-1]).angles
        variant = replace_table(program, "angles", ahead)
        yield replace(
            variant, steps={name: step for name, step in variant.steps.items() if name.endswith(steps)}
        )

    return mistake


def round_angles(program: Program) -> Iterator[Variant]:
    """Yields RoPE with positions, frequencies and angles in 16 bits, or with the positions alone."""
    angles = program.tape.values.get("angles")
    if angles is None or angles.ndim != 2 or len(angles) < 2 or angles[0].any():
        return
    for held in (BY_NAME["bfloat16"], BY_NAME["float16"]):
        places, frequencies = (round_to(x, held) for x in (np.arange(len(angles), dtype=float), angles[1]))
        wrong = round_to(np.outer(places, frequencies), held)
        yield replace_table(program, "angles", wrong, f"angles in {held.name}")
        wrong = np.outer(places, angles[1])
        if (places != np.arange(len(angles))).any():  # 257 is the first position that bfloat16 does not hold
            yield replace_table(program, "angles", wrong, f"positions in {held.name}")


@in_every_step
def omit_position_bias(step: Step, tape: Tape) -> Step | None:
    return pass_through(step, step.inputs[0]) if step.name.endswith(".biased") else None


@in_every_step
def rotate_by_degrees(step: Step, tape: Tape) -> Step | None:
    if step.op.name != "rotate":
        return None
    return replace_forward(
        step, lambda x, angles, **attrs: step.op.forward(x, angles * (np.pi / 180), **attrs), step.op.reads
    )

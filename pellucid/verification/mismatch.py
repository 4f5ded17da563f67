"""Equal or not: the first value at which two sets of named values differ, and its worst cell."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from pellucid.base.errors import TapeError
from pellucid.explanation.derive import record_arithmetic
from pellucid.explanation.formula import build_formula
from pellucid.explanation.pieces import format_expression
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Array, Index

BETWEEN_ENGINES = 1e-10
CACHED_AGAINST_FULL = 1e-12


@dataclass(frozen=True)
class Mismatch:
    """A value that differs from the wanted one, at its worst cell."""

    name: str
    index: Index
    got: float
    wanted: float
    note: str = ""

    def __str__(self) -> str:
        at = f"[{','.join(map(str, self.index))}]" if self.index else ""
        return f"{self.name}{at}: got {self.got!r}, wanted {self.wanted!r}{self.note}"


def find_mismatch(
    name: str, got: Array, wanted: Array, tolerance: float, scale: float = 0.0
) -> Mismatch | None:
    """Returns None where max|got − wanted| ≤ tolerance · max(max|wanted|, scale / 1000), and infinities and
    NaN are in the same cells; else the worst cell."""
    if got.shape != wanted.shape:
        return Mismatch(name, (), np.nan, np.nan, f" (shape {got.shape}, wanted {wanted.shape})")
    is_finite = np.isfinite(wanted) & np.isfinite(got)
    is_same = np.where(np.isnan(wanted), np.isnan(got), got == wanted)
    is_misplaced = ~is_finite & ~is_same
    if is_misplaced.any():
        index = tuple(int(i) for i in np.argwhere(is_misplaced)[0])
        return Mismatch(name, index, float(got[index]), float(wanted[index]))
    error = np.abs(np.where(is_finite, got, 0.0) - np.where(is_finite, wanted, 0.0))
    limit = tolerance * max(largest([wanted]), scale * 1e-3)
    if error.size and error.max() > limit:
        index = tuple(int(i) for i in np.unravel_index(int(error.argmax()), error.shape))
        return Mismatch(name, index, float(got[index]), float(wanted[index]))
    return None


def find_first_mismatch(
    got: Mapping[str, Array], wanted: Mapping[str, Array], tolerance: float
) -> Mismatch | None:
    """Returns the first mismatch in the order of `wanted`, None where all values are equal."""
    scales = scales_by_kind(wanted)
    for name, value in wanted.items():
        if name not in got:
            return Mismatch(name, (), np.nan, np.nan, " (missing)")
        if found := find_mismatch(name, got[name], value, tolerance, scales[kind_of(name)]):
            return found
    return None


def largest(values: Iterable[Array]) -> float:
    """Returns the largest finite |entry| of all values: the scale by which small values are judged."""
    return max((float(np.abs(v[np.isfinite(v)]).max(initial=0.0)) for v in values), default=0.0)


def scales_by_kind(values: Mapping[str, Array]) -> dict[str, float]:
    """Returns the largest entry of each kind of value."""
    scales: dict[str, float] = {}
    for name, value in values.items():
        scales[kind_of(name)] = max(scales.get(kind_of(name), 0.0), largest([value]))
    return scales


def kind_of(name: str) -> str:
    """Returns the kind of a value by its name: gradients, parameters after an update, or activations."""
    return "gradient" if name.startswith("d.") else "update" if "@" in name else "activation"


def explain_mismatch(found: Mismatch, trace: Trace, head: bool = True, top: int = 6) -> str:
    """Returns the lines that explain a mismatch: its cell, both numbers, the arithmetic of the wanted one.

    For tests: `assert not found, explain_mismatch(found, trace)`. Without `head`, the arithmetic alone.
    """
    if not found.index and trace.value(found.name).ndim:
        return str(found)
    at = trace.address(found.name, found.index)
    lines = [f"{at}: got {found.got!r}, wanted {found.wanted!r}{found.note}"] if head else []
    step = trace.tape.steps.get(trace.tape.resolve(found.name))
    if step is None:
        return "\n".join([*lines, f"  {at} is given"])
    try:
        made = record_arithmetic(trace, step, found.index, top)
    except Exception as error:  # an untrusted trace may hold a step that cannot run
        raise TapeError(f"{found.name!r} cannot be recomputed from this trace: {error}.") from error
    return "\n".join(
        [*lines, f"  {build_formula(trace, step, found.index)}", f"  = {format_expression(made, 6)}"]
    )

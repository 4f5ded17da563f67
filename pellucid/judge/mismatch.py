"""Equal or not: where two sets of named values first part, told so that a person can act."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from pellucid.errors import TapeError
from pellucid.explain.derive import arithmetic
from pellucid.explain.expression import written
from pellucid.explain.formula import build_formula
from pellucid.explain.trace import Trace
from pellucid.reference.op import Array, Index

BETWEEN_ENGINES = 1e-10
CACHED_AGAINST_FULL = 1e-12
ELSEWHERE = 1e-12
"""A replay on another machine: `exp` differs between processors in the last place."""


@dataclass(frozen=True)
class Mismatch:
    """The first value that differs, at its worst cell."""

    name: str
    index: Index
    got: float
    wanted: float
    note: str = ""

    def __str__(self) -> str:
        at = f"[{','.join(map(str, self.index))}]" if self.index else ""
        return f"{self.name}{at}: got {self.got!r}, wanted {self.wanted!r}{self.note}"


def largest(values: Iterable[Array]) -> float:
    """The largest finite entry of all: the scale against which small values are judged."""
    return max((float(np.abs(v[np.isfinite(v)]).max(initial=0.0)) for v in values), default=0.0)


def find_mismatch(
    name: str, got: Array, wanted: Array, tolerance: float, scale: float = 0.0
) -> Mismatch | None:
    """None where max|a − b| ≤ tolerance · max(max|b|, scale / 1000) and infinities and NaN coincide."""
    if got.shape != wanted.shape:
        return Mismatch(name, (), np.nan, np.nan, f" (shape {got.shape}, wanted {wanted.shape})")
    finite = np.isfinite(wanted) & np.isfinite(got)
    same = np.where(np.isnan(wanted), np.isnan(got), got == wanted)
    strange = ~finite & ~same
    if strange.any():
        index = tuple(int(i) for i in np.argwhere(strange)[0])
        return Mismatch(name, index, float(got[index]), float(wanted[index]))
    error = np.abs(np.where(finite, got, 0.0) - np.where(finite, wanted, 0.0))
    limit = tolerance * max(largest([wanted]), scale * 1e-3)
    if error.size and error.max() > limit:
        index = tuple(int(i) for i in np.unravel_index(int(error.argmax()), error.shape))
        return Mismatch(name, index, float(got[index]), float(wanted[index]))
    return None


def find_first_mismatch(
    got: Mapping[str, Array], wanted: Mapping[str, Array], tolerance: float
) -> Mismatch | None:
    """The first name, in the order of `wanted`, at which the two part.

    Values of one kind (gradients, parameters after an update, activations) share a scale.
    """
    kinds: dict[str, list[Array]] = {}
    for name, value in wanted.items():
        kinds.setdefault(kind(name), []).append(value)
    scales = {kind: largest(values) for kind, values in kinds.items()}
    for name, value in wanted.items():
        if name not in got:
            return Mismatch(name, (), np.nan, np.nan, " (missing)")
        if found := find_mismatch(name, got[name], value, tolerance, scales[kind(name)]):
            return found
    return None


def kind(name: str) -> str:
    """Values of one kind share a scale."""
    return "gradient" if name.startswith("d.") else "update" if "@" in name else "activation"


SIZES = {"v": "vocab_size", "c": "d_model", "h": "n_head", "k": "n_kv_head", "d": "d_head", "f": "d_ff"}
"""The key of the config that says how long an axis is."""


def model_sizes(trace: Trace) -> dict[str, int]:
    """Returns the sizes of the model that a trace ran, by the keys of its config."""
    layers = {name.split(".")[1] for name in trace.tape.steps if name.startswith("blocks.")}
    found = {"n_layer": len(layers)}
    for name in ("embedded", "blocks.0.attn.q", "blocks.0.attn.k", "blocks.0.mlp.up", "logits"):
        if name in trace.tape:
            lengths = zip(trace.about(name).axes, trace.value(name).shape, strict=True)
            found |= {SIZES[axis]: length for axis, length in lengths if axis in SIZES}
    return found


def explain_mismatch(found: Mismatch, trace: Trace, head: bool = True, top: int = 6) -> str:
    """A departure as a person wants it: where, both numbers, and the arithmetic that makes the wanted one.

    For tests: `assert not found, explain_mismatch(found, trace)`.
    """
    if not found.index and trace.value(found.name).ndim:
        return str(found)
    at = trace.address(found.name, found.index)
    lines = [f"{at}: got {found.got!r}, wanted {found.wanted!r}{found.note}"] if head else []
    step = trace.tape.steps.get(trace.tape.resolve(found.name))
    if step is None:
        return "\n".join([*lines, f"  {at} is given"])
    try:
        made = arithmetic(trace, step, found.index, top)
    except Exception as error:  # a trace from a stranger may hold a step that cannot run
        raise TapeError(f"{found.name!r} cannot be computed again from this trace: {error}.") from error
    return "\n".join([*lines, f"  {build_formula(trace, step, found.index)}", f"  = {written(made, 6)}"])

"""What a check is, and what it finds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pellucid.explain.trace import Trace
from pellucid.judge.mismatch import explain_mismatch, find_mismatch, kind, largest
from pellucid.judge.verdict import Judged, Replayed
from pellucid.reference.op import Array

if TYPE_CHECKING:
    from pellucid.checks.subject import Subject


@dataclass(frozen=True)
class Finding:
    """`verdict` is "equal", "noise", "BUG" or "skipped"; `measured` the figure, `at` the name where a bug
    is, `story` the lines that help to mend it."""

    verdict: str
    measured: str
    at: str = ""
    story: str = ""


@dataclass(frozen=True)
class Check:
    """One claim about a model. A `quick` check runs with `--quick` too. Where a `required` check finds a bug,
    the checks after it are not run: they would measure that bug again, and blame something else."""

    name: str
    claim: str
    budget: str
    measure: Callable[["Subject"], Finding]
    quick: bool = True
    required: bool = False


def compared(
    got: Mapping[str, Array], wanted: Mapping[str, Array], tolerance: float, trace: Trace | None = None
) -> Finding:
    """Equal where every value of `wanted` is within the tolerance, else a bug at the first that is not."""
    scales: dict[str, float] = {}
    for name, value in wanted.items():
        scales[kind(name)] = max(scales.get(kind(name), 0.0), largest([value]))
    worst = 0.0
    for name, value in wanted.items():
        scale = scales[kind(name)]
        if found := find_mismatch(name, got[name], value, tolerance, scale):
            story = explain_mismatch(found, trace) if trace and name in trace.tape else str(found)
            return Finding("BUG", _far(found.got, found.wanted), name, story)
        worst = max(worst, _error(got[name], value) / (max(largest([value]), scale * 1e-3) or 1.0))
    return Finding("equal", f"{worst:.1e} of {_many(len(wanted), 'value')}")


def judged(replayed: Replayed) -> Finding:
    """The verdict of a local replay."""
    if replayed.bugs:
        first = replayed.bugs[0]
        return Finding("BUG", _used(first), first.place, str(replayed))
    worst, count = replayed.worst, _many(len(replayed.values), "value")
    if replayed.verdict == "cannot tell":
        return Finding("skipped", str(replayed).partition("\n")[0])
    if worst is None or not worst.units:
        return Finding("equal", count)
    return Finding(replayed.verdict, f"{_used(worst)} at {worst.name}, {count}")


def _used(value: Judged) -> str:
    """The part of its budget that a value uses, in the budget's own unit."""
    unit = f"times a replay's error in {value.replayed}" if value.replayed else "units"
    return f"{value.units:.2g} of {value.allowed:.3g} {unit}"


def _error(got: Array, wanted: Array) -> float:
    finite = np.isfinite(wanted)
    return float(np.abs(got[finite] - wanted[finite]).max(initial=0.0))


def _far(got: float, wanted: float) -> str:
    return f"{got:.6g} for {wanted:.6g}"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"

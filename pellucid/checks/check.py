"""A check: one claim about a model, its error budget, and the function that measures it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pellucid.checks.subject import Subject
from pellucid.explain.trace import Trace
from pellucid.format import pluralize
from pellucid.judge.mismatch import explain_mismatch, find_mismatch, kind_of, largest, scales_by_kind
from pellucid.judge.verdict import Finding, Verdict
from pellucid.reference.op import Array


@dataclass(frozen=True)
class Check:
    """One claim about a model, a complete sentence."""

    name: str
    claim: str
    budget: str
    measure: Callable[[Subject], Finding]
    quick: bool = True
    """Whether it also runs with `--quick`."""
    required: bool = False
    """Whether the checks after it are not run where it finds a bug: they would measure that bug again, and
    blame something else."""

    def run(self, subject: Subject) -> Finding:
        """Measures the claim on a model."""
        start = time.perf_counter()
        found = self.measure(subject)
        seconds = time.perf_counter() - start
        return replace(found, name=self.name, claim=self.claim, allowed=self.budget, seconds=seconds)


def compare_values(
    got: Mapping[str, Array], wanted: Mapping[str, Array], tolerance: float, trace: Trace | None = None
) -> Finding:
    """Returns EQUAL where every wanted value is within the tolerance, else BUG at the first that is not."""
    scales = scales_by_kind(wanted)
    worst = 0.0
    for name, value in wanted.items():
        scale = scales[kind_of(name)]
        if found := find_mismatch(name, got[name], value, tolerance, scale):
            message = explain_mismatch(found, trace) if trace and name in trace.tape else str(found)
            return Finding(Verdict.BUG, f"{found.got:.6g} for {found.wanted:.6g}", name, message)
        worst = max(worst, _largest_error(got[name], value) / (max(largest([value]), scale * 1e-3) or 1.0))
    return Finding(Verdict.EQUAL, f"{worst:.1e} of {pluralize(len(wanted), 'value')}")


def _largest_error(got: Array, wanted: Array) -> float:
    is_finite = np.isfinite(wanted)
    return float(np.abs(got[is_finite] - wanted[is_finite]).max(initial=0.0))

"""Checks that every weight is a finite number."""

import numpy as np

from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.verdict import Finding, Judged, Verdict

LISTED = 10
"""How many damaged weights are listed by name."""


def measure_finite(subject: Subject) -> Finding:
    """Finds NaN and Inf. One NaN makes every value after it NaN, and two engines that agree on NaN agree on
    nothing."""
    count, damaged, lines = 0, list[str](), list[str]()
    for name, weight in subject.weights.items():
        count += weight.size
        if np.isfinite(weight).all():
            continue
        damaged.append(name)
        if len(lines) < LISTED:
            cells = np.argwhere(~np.isfinite(weight))
            index = tuple(int(i) for i in cells[0])
            at = f"{name}[{','.join(map(str, index))}]"
            many = f"{len(cells):,} of {weight.size:,} numbers"
            lines.append(f"{at} is {weight[index]}; NaN or Inf in {many} of {name}")
    if not damaged:
        return Finding(Verdict.EQUAL, f"{count:,} numbers")
    if len(damaged) > LISTED:
        lines.append(f"and {len(damaged) - LISTED:,} more weights")
    measured = f"NaN or Inf in {len(damaged):,} of {len(subject.weights):,} weights"
    return Finding(Verdict.BUG, measured, damaged[0], "\n".join(lines))


CHECKS = (
    Check(
        "weights",
        "Every weight is a finite number.",
        "no NaN, no Inf",
        measure_finite,
        Judged.MODEL,
        required=True,
    ),
)

"""The weights themselves: every one of them is a finite number."""

import numpy as np

from pellucid.checks.finding import Check, Finding
from pellucid.checks.subject import Subject

NAMED = 10
"""Weights that are listed by name; of more, how many there are."""


def finite(subject: Subject) -> Finding:
    """One NaN makes every value after it NaN, and two engines that agree on NaN agree on nothing."""
    count, damaged, lines = 0, list[str](), list[str]()
    for name, weight in subject.weights.items():
        count += weight.size
        if np.isfinite(weight).all():
            continue
        damaged.append(name)
        if len(lines) < NAMED:
            wrong = np.argwhere(~np.isfinite(weight))
            index = tuple(int(i) for i in wrong[0])
            at = f"{name}[{','.join(map(str, index))}]"
            many = f"{len(wrong):,} of {weight.size:,} numbers"
            lines.append(f"{at} is {weight[index]}; NaN or Inf in {many} of {name}")
    if not damaged:
        return Finding("equal", f"{count:,} numbers")
    if len(damaged) > NAMED:
        lines.append(f"and {len(damaged) - NAMED:,} more weights")
    measured = f"NaN or Inf in {len(damaged):,} of {len(subject.weights):,} weights"
    return Finding("BUG", measured, damaged[0], "\n".join(lines))


CHECKS = (Check("weights", "every weight is a finite number", "no NaN, no Inf", finite, required=True),)

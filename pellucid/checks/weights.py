"""The weights themselves: numbers, all of them."""

import numpy as np

from pellucid.checks.finding import Check, Finding
from pellucid.checks.subject import Subject


def finite(subject: Subject) -> Finding:
    """One NaN makes every value after it NaN, and two engines that agree on NaN agree on nothing."""
    count = 0
    for name, weight in subject.weights.items():
        strange = np.argwhere(~np.isfinite(weight))
        if len(strange):
            index = tuple(int(i) for i in strange[0])
            at = f"{name}[{','.join(map(str, index))}]"
            told = f"{len(strange):,} of its {weight.size:,} numbers are none; {at} is {weight[index]}"
            return Finding("BUG", f"{len(strange):,} of {weight.size:,}", name, told)
        count += weight.size
    return Finding("equal", f"{count:,} numbers")


CHECKS = (Check("weights", "every weight is a finite number", "none that is not", finite),)

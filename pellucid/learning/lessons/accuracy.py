"""The number of targets that a model predicts after each update, on the tape of its training."""

from itertools import count

import numpy as np

from pellucid.base.names import IGNORE_INDEX
from pellucid.explanation.trace import Trace

UPDATES = "updates"


def record_right(trace: Trace) -> Trace:
    """Adds right@k, the number of targets that are the likeliest token after k updates, and `updates`, the
    least k with all of them right (−1 where there is none), and returns the trace."""
    tape, targets = trace.tape, trace.value("targets")
    counted = targets != IGNORE_INDEX
    total, first = int(counted.sum()), -1
    for k in count():
        if f"probs@{k}" not in tape:
            break
        predicted = tape[f"probs@{k}"].argmax(axis=-1)
        right = int(np.sum(predicted[counted] == targets[counted]))
        tape.describe(
            tape.constant(f"right@{k}", right),
            meaning=f"number of targets that are the likeliest token after {k} updates",
        )
        if right == total and first < 0:
            first = k
    tape.describe(
        tape.constant(UPDATES, first), meaning="number of updates after which every target is the likeliest"
    )
    return trace

"""Replays a trace: every step recomputed from its own recorded inputs, bit for bit."""

from dataclasses import dataclass

import numpy as np

from pellucid.base.dtypes import OTHER_MACHINE
from pellucid.explanation.trace import Trace
from pellucid.verification.mismatch import Mismatch, find_mismatch, largest
from pellucid.verification.verdict import Verdict


@dataclass(frozen=True)
class Replay:
    """How many steps were recomputed, how many of them agree bit for bit, and those that do not agree."""

    steps: int
    exact: int
    mismatches: list[Mismatch]

    @property
    def verdict(self) -> Verdict:
        if self.mismatches:
            return Verdict.BUG
        return Verdict.EQUAL if self.exact == self.steps else Verdict.NOISE


def replay(trace: Trace) -> Replay:
    """Recomputes each step from the values in the file, so that one wrong number is found where it is."""
    tape = trace.tape
    exact, mismatches = 0, []
    scales = {
        role: largest(value for name, value in tape.values.items() if tape.roles[name] == role)
        for role in set(tape.roles.values())
    }
    for name, step in tape.steps.items():
        recorded = tape.values[name]
        try:
            with np.errstate(all="ignore"):
                recomputed = step.run(tape.values)
        except Exception as error:  # untrusted attributes may break an operation in any way
            mismatches.append(Mismatch(name, (), np.nan, np.nan, f" ({step.op.name} cannot run: {error})"))
            continue
        if recomputed.shape == recorded.shape and np.array_equal(recomputed, recorded, equal_nan=True):
            exact += 1
        elif found := find_mismatch(name, recorded, recomputed, OTHER_MACHINE, scales[tape.roles[name]]):
            mismatches.append(found)
    return Replay(len(tape.steps), exact, mismatches)

"""Finds the usual mistake behind a bug: the steps that end in it, recomputed with each mistake in them.

A mistake explains a bug if, with the recorded inputs, only a rounding error is left.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pellucid.base.errors import PellucidError
from pellucid.config import ModelConfig
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape
from pellucid.verification.foreign_values import Recording
from pellucid.verification.judge_run import judge_run
from pellucid.verification.mismatch import find_mismatch
from pellucid.verification.mistakes import MISTAKES, Program, Variant, describe
from pellucid.verification.run_report import Deviation, RunReport
from pellucid.verification.span import cut_span, measure_misfit, run_span

MAX_NUMBERS = 3 * 10**8
"""A span that reads more numbers than this, weights included, is not recomputed for every mistake."""

SHAPE_ERRORS = (ValueError, IndexError, TypeError, KeyError, AttributeError)


def explain_bug(
    report: RunReport, trace: Trace, recorded: Recording, config: ModelConfig | None = None
) -> RunReport:
    """Adds the usual mistakes that would give the numbers of the first bug, the best fit first."""
    first = report.bugs[0] if report.bugs else None
    if first is None or first.given or first.layout or not first.is_known:
        return report
    return replace(report, explained_by=tuple(find_fitting_mistakes(trace, recorded, first.name, config)))


def find_fitting_mistakes(
    trace: Trace, recorded: Recording, bug: str, config: ModelConfig | None = None
) -> list[str]:
    """Returns the mistakes under which the value of that name follows from the recorded values."""
    tape, name = trace.tape, trace.tape.resolve(bug)
    theirs = {tape.resolve(other): value for other, value in reversed([*recorded.items()])}
    theirs[name] = recorded[bug]
    right = cut_span(tape, name, theirs)
    if sum(right.values[read].size for step in right.steps.values() for read in step.inputs) > MAX_NUMBERS:
        return []
    misfit = measure_misfit(theirs[name].value, run_span(right, theirs)[name])
    found: list[tuple[float, str]] = []
    for mistake in MISTAKES:
        for variant in find_variants(mistake, Program(tape, config)):
            if variant.steps.keys().isdisjoint(right.steps):
                continue
            left = _deviation_left(cut_span(tape, name, theirs, variant), name, theirs, misfit)
            if left and not left.is_bug:
                found.append((left.share, describe(mistake, variant)))
    return list(dict.fromkeys(mistake for _, mistake in sorted(found, key=lambda fit: fit[0])))


def find_variants(mistake: str, program: Program) -> list[Variant]:
    """Returns the program with the mistake in it, in each way in which it applies."""
    try:
        return [*MISTAKES[mistake](program)]
    except (PellucidError, *SHAPE_ERRORS):
        return []  # an untrusted trace may use our names for other things


def _deviation_left(span: Tape, name: str, theirs: Recording, misfit: tuple[int, float]) -> Deviation | None:
    """Returns the deviation that is left with the mistake in the span, None where it comes no nearer."""
    try:
        misplaced, apart = measure_misfit(theirs[name].value, run_span(span, theirs)[name])
        if (misplaced, 2 * apart) > misfit:
            return None
        known = {read: theirs[read] for read in span.values if read in theirs}
        return next(iter(judge_run(Trace(span), known, only=name).values), None)
    except (PellucidError, *SHAPE_ERRORS):
        return None  # the mistake does not apply to these shapes


# ---- one step


def diagnose(tape: Tape, name: str, answer: Array, tolerance: float = 1e-9) -> list[str]:
    """Returns the mistakes that would give this answer for a step, from the tape's own inputs."""
    name = tape.resolve(name)
    return [
        mistake
        for mistake in MISTAKES
        if any(
            find_mismatch(name, np.asarray(answer), wrong, tolerance) is None
            and find_mismatch(name, wrong, tape[name], tolerance) is not None
            for wrong in _run_with_mistake(tape, name, mistake)
        )
    ]


def plant_mistake(tape: Tape, name: str, mistake: str) -> dict[str, Array]:
    """Returns every value of the same program with one mistake in one step."""
    for wrong in _run_with_mistake(tape, name, mistake):
        return tape.rerun({name: wrong})
    raise ValueError(f"{mistake!r} does not apply to {name!r}")


def _run_with_mistake(tape: Tape, name: str, mistake: str) -> Iterator[Array]:
    """Yields the value of one step with the mistake in it, by each variant."""
    for variant in MISTAKES[mistake](Program(tape)):
        if name in variant.steps:
            yield variant.steps[name].run(tape.values | dict(variant.tables))

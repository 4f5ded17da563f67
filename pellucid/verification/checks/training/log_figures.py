"""Checks the log of a run: every figure that follows from others of the log, the recipe or the data."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from pellucid.base.formatting import pluralize
from pellucid.data.rows import Rows
from pellucid.data.rows.packed import Packed
from pellucid.data.rows.padded import Padded
from pellucid.data.rows.records import Records
from pellucid.data.rows.windows import Windows
from pellucid.training.history.log import Line
from pellucid.verification.checks.training.run_subject import RunCheck, RunSubject
from pellucid.verification.run_report import format_apart
from pellucid.verification.verdict import Finding, Verdict

EXACT, CLOCK = 1e-12, 1e-5
"""How far a figure may be from the right one, relatively; the second of those that a clock measured."""
PAST = 0.95
"""The weight of the past in the smoothed loss: s ← 0.95 s + 0.05 loss."""
EPOCHS = 1e-4
"""How far the logged number of epochs may be off: it is rounded to four digits."""


class LoggedFigure(NamedTuple):
    """A figure of the log and the right one."""

    line: Line
    key: str
    wanted: float
    formula: str
    allowed: float = EXACT
    absolute: float = 0.0

    @property
    def got(self) -> float:
        return get_number(self.line, self.key)

    @property
    def is_right(self) -> bool:
        return math.isclose(self.got, self.wanted, rel_tol=self.allowed, abs_tol=self.absolute)


def get_number(line: Line, key: str) -> float:
    """Returns a figure of a line; NaN where it has none, or something else there."""
    found = line.get(key)
    return float(found) if isinstance(found, int | float) else math.nan


def recompute_log(subject: RunSubject) -> Iterator[LoggedFigure]:
    """Yields every figure of the log that can be recomputed, in its order."""
    steps = [line for line in subject.past.lines if line.get("kind") == "step"]
    yield from _recompute_steps(subject, steps)
    yield from _recompute_clock(steps)
    yield from _recompute_evaluations(subject)


def _recompute_steps(subject: RunSubject, steps: Sequence[Line]) -> Iterator[LoggedFigure]:
    recipe, smoothed = subject.past.recipe, math.nan
    rows, size = subject.past.source.train, recipe.data.batch_size
    has_one_width = not isinstance(rows, Padded | Records)
    per_epoch = count_positions(rows)
    for line in steps:
        k, loss = line["step"], get_number(line, "loss")
        rate = recipe.optimizer.lr * recipe.schedule.factor(k - 1, recipe.steps_at(k - 1))
        yield LoggedFigure(line, "lr", rate, f"the {recipe.schedule.kind} schedule")
        if line is steps[0] or not math.isnan(smoothed):
            smoothed = loss if line is steps[0] else PAST * smoothed + (1 - PAST) * loss
            yield LoggedFigure(line, "smoothed", smoothed, f"{PAST} · the one before + {1 - PAST:.2g} · loss")
        if has_one_width:
            count = k * size * recipe.length
            yield LoggedFigure(line, "tokens", count, f"{k} steps · {size} rows · {recipe.length} tokens")
        if per_epoch:
            epochs = k * size * recipe.length / per_epoch
            formula = f"{k} steps · {size} rows · {recipe.length} tokens / {per_epoch:,} in an epoch"
            yield LoggedFigure(line, "epoch", epochs, formula, absolute=EPOCHS)


def count_positions(rows: Rows) -> int:
    """Returns the positions of an epoch, where rows of one width have them: whole windows, or the targets of
    all documents. 0 where that is not so."""
    if isinstance(rows, Windows):
        return -(-len(rows.tokens) // rows.length) * rows.length
    return int(rows.order.lengths().sum()) if isinstance(rows, Packed) else 0


def _recompute_clock(steps: Sequence[Line]) -> Iterator[LoggedFigure]:
    """Yields the tokens per second of each step, by the counts and clocks of two lines."""
    for before, line in pairwise(steps):
        seconds, tokens = (get_number(line, key) - get_number(before, key) for key in ("seconds", "tokens"))
        if line["step"] == before["step"] + 1 and seconds > 0:
            formula = "the tokens since the step before / the seconds since it"
            yield LoggedFigure(line, "tokens_per_second", tokens / seconds, formula, CLOCK + 1e-11 / seconds)


def _recompute_evaluations(subject: RunSubject) -> Iterator[LoggedFigure]:
    source, best, smoothed = subject.past.source, math.nan, math.nan
    for line in subject.past.lines:
        kind, loss = line.get("kind"), get_number(line, "loss")
        if kind == "step":
            smoothed = get_number(line, "smoothed")
        elif kind == "evaluation" and not math.isnan(loss):
            is_best = math.isnan(best) or loss < best
            best = loss if is_best else best
            yield LoggedFigure(line, "best", float(is_best), "1 for the lowest loss so far, else 0")
            floor, bigram = source.entropy_floor, source.bigram_baseline
            if floor is not None:
                yield LoggedFigure(line, "gap", loss - floor, f"loss − {floor:.6g}", absolute=1e-12)
            if floor is not None and bigram is not None:
                learned = (bigram - loss) / (bigram - floor)
                formula = f"({bigram:.6g} − loss) / ({bigram:.6g} − {floor:.6g})"
                yield LoggedFigure(line, "learned", learned, formula, absolute=1e-12)
        elif kind in ("end", "interrupted"):
            yield LoggedFigure(line, "loss", smoothed, "the smoothed loss of the last step")
            yield LoggedFigure(line, "best", best, "the lowest validation loss")


def measure_log(subject: RunSubject) -> Finding:
    """Recomputes the figures of all lines; names the first that is wrong."""
    if not subject.past.lines:
        return Finding(Verdict.SKIPPED, "the run has no log")
    count = 0
    for figure in recompute_log(subject):
        if math.isnan(figure.got) or math.isnan(figure.wanted):  # not there, or not finite: null
            continue
        count += 1
        if not figure.is_right:
            step, key = figure.line["step"], figure.key
            got, wanted = format_apart(figure.got, figure.wanted)
            message = f"{key} of step {step} is {got} in the log, and {figure.formula} is {wanted}"
            return Finding(Verdict.BUG, f"{got} for {wanted}", f"{key}@{step}", message)
    return Finding(
        Verdict.EQUAL, f"{pluralize(count, 'figure')} of {pluralize(len(subject.past.lines), 'line')}"
    )


CHECKS = (
    RunCheck(
        "log figures",
        "Every figure of the log is that of its formula: rate, smoothed loss, tokens, epoch, best, gap.",
        f"{EXACT:g}; {CLOCK:g} of what a clock measured",
        measure_log,
        trusts="the logged losses and clocks, the schedule of the recipe, and the entropy of generated text",
    ),
)

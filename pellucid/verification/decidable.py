"""Usual mistakes that the recorded values can decide, and which further values would decide the others.

A verdict of noise says that rounding explains every difference. Where steps are hidden between two recorded
values, it would also explain some mistakes: an ε that is off by a little, a norm in bfloat16, positions that
are counted from 1. So before noise is said, each mistake is tried on their own numbers: it is
named, excluded, or open. A lower precision has no direction; it is excluded where their error is smaller than
it would be with it.

A mistake that is open counts if another recorded value would decide it, which is tried in the same way; the
verdict is then "no bug seen", with these mistakes and the names of these values. One that no value of their
type would show is below what this type can hold.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pellucid.base.dtypes import BY_NAME, Dtype
from pellucid.base.errors import PellucidError
from pellucid.config import ModelConfig
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Array
from pellucid.reference.tape import Step, Tape
from pellucid.verification.diagnosis import SHAPE_ERRORS, find_variants
from pellucid.verification.foreign_values import RecordedValue, Recording
from pellucid.verification.judge_run import RERUN_ALLOWED
from pellucid.verification.mistakes import MISTAKES, Program, Variant, describe
from pellucid.verification.precision import NARROW, measure_share, regress
from pellucid.verification.rounding import MIN_CELLS, Bounded, round_to
from pellucid.verification.run_report import RunReport
from pellucid.verification.span import (
    STATISTICS,
    RoundedProgram,
    compute_exactly,
    compute_in_float32,
    compute_rounded,
    find_kinds,
    generalize,
    is_one_norm,
    round_each_step,
    run_span,
)
from pellucid.verification.verdict import Verdict

HALF = 0.5
"""The slope on a mistake's effect is 1 with the mistake and 0 without it; a half divides them."""
STANDARD_ERRORS = 6
MIN_ROWS = 8
"""How many standard errors a slope must be from 0 to name a mistake, and from 1 to exclude it; more of them
where they were estimated from few rows: Student's distribution has long tails."""
LARGER = 1.5
"""How many times their error, in the median row, a mistake or a lower precision must give to be excluded:
with it, their error would be at least as large."""
LARGEST = 1e60
"""Where nothing was rounded there is no unit, and anything is this many."""


class Outcome(NamedTuple):
    """What recorded numbers say about a mistake: "named", "excluded", "open"; "" where it is not in them."""

    said: str
    explained: float = 0.0
    """The part of the squared error that the mistake explains."""
    has_size: bool = False
    """Whether it explains it with its own size, and not with a multiple of it."""


EXCLUDED, OPEN, ABSENT = Outcome("excluded"), Outcome("open"), Outcome("")


@dataclass(frozen=True)
class SpanEvidence:
    """One recorded value with its span: their error, and those of healthy runs from the same inputs."""

    name: str
    span: Tape
    theirs: Array
    dtype: Dtype
    right: Mapping[str, Array]
    """Every value of the span, and what it reads, in float64."""
    healthy: tuple[Array, ...]
    """The value in healthy arithmetic: each step rounded, and the last one alone."""

    @cached_property
    def exact(self) -> Array:
        return self.right[self.name]

    @cached_property
    def unit(self) -> Array:
        """The size of healthy errors of each cell: of its row, and of its own last place."""
        with np.errstate(all="ignore"):
            apart = np.nan_to_num(np.abs(self.healthy[0] - self.exact), posinf=0.0)
            last_place = self.dtype.roundoff * np.maximum(np.abs(self.exact), self.dtype.smallest_normal)
            row = np.median(apart, axis=-1, keepdims=True)
        return np.asarray(np.nan_to_num(np.sqrt(row**2 + last_place**2), posinf=1.0))

    def in_units(self, made: Array) -> Array:
        """Returns made − exact in units of healthy errors, 0 where one of them is infinite."""
        is_judged = np.isfinite(self.exact) & np.isfinite(self.theirs)
        with np.errstate(all="ignore"):
            units = np.clip(np.nan_to_num((made - self.exact) / self.unit), -LARGEST, LARGEST)
        return np.where(is_judged, units, 0.0)

    def weigh(self, wrong: Array) -> Outcome:
        """Returns what their numbers say about the mistake that gives `wrong`."""
        if wrong.shape != self.exact.shape or not np.array_equal(np.isfinite(wrong), np.isfinite(self.exact)):
            return EXCLUDED  # a number for −∞, or the reverse, is a bug in itself
        if self.is_smaller_than(wrong):
            return EXCLUDED
        direction = self.in_units(wrong)
        balance = _balance_rows(direction)
        direction, error = direction * balance, self.in_units(self.theirs) * balance
        slope = regress(error, direction)
        if slope.rows >= MIN_ROWS:
            chance = [abs(regress(self.in_units(run) * balance, direction).value) for run in self.healthy]
            margin = STANDARD_ERRORS * (1 + 12 / slope.rows) * max(slope.error, *chance)
            if slope.value > max(HALF, margin):
                explained = slope.value**2 * float((direction**2).sum() / (error**2).sum())
                return Outcome("named", explained, slope.value < 1 / HALF)
            if abs(slope.value) < min(HALF, 1 - margin):
                return EXCLUDED
        return EXCLUDED if self.is_seen(wrong) else OPEN

    def is_seen(self, wrong: Array) -> bool:
        """Returns whether a cell of `wrong` is beyond the error budget of the span, twice for a safe
        distance."""
        return (
            float(Bounded(self.exact).multiples(wrong, self.healthy[0], self.dtype).max()) > 2 * RERUN_ALLOWED
        )

    def is_smaller_than(self, wrong: Array) -> bool:
        """Returns whether their error is clearly smaller than it would be with a mistake or in a lower
        precision."""
        if not np.array_equal(np.isfinite(wrong), np.isfinite(self.exact)):
            return True
        own, other = (np.sqrt((self.in_units(made) ** 2).mean(axis=-1)) for made in (self.theirs, wrong))
        ratio = other[other > 0] / np.maximum(own[other > 0], 1 / LARGEST)
        return bool(ratio.size) and float(np.median(ratio)) > LARGER


def gather(name: str, span: Tape, recorded: Recording) -> SpanEvidence:
    """Returns the evidence of a recorded value at the end of a span."""
    own = recorded[name]
    last = round_to(run_span(span, recorded, compute_in_float32)[name], own.dtype)
    each = run_span(span, recorded, round_each_step(own.dtype))[name]
    return SpanEvidence(name, span, own.value, own.dtype, run_span(span, recorded), (each, last))


def _balance_rows(direction: Array) -> Array:
    """Returns a factor for each row, so that no few rows outweigh the others."""
    weight = (direction**2).sum(axis=-1, keepdims=True)
    usual = np.median(weight[weight > 0]) if (weight > 0).any() else 1.0
    return np.asarray(np.sqrt(4 * usual / np.maximum(weight, 4 * usual)))


MAX_STEPS, MAX_ROUNDED, MAX_NUMBERS = 64, 6 * 10**7, 3 * 10**8
"""A span of more steps than a few blocks have is not examined if it reads more numbers than `MAX_NUMBERS`,
nor for a lower precision, which takes ten times as long, if more than `MAX_ROUNDED`."""


@dataclass(frozen=True)
class Possible:
    """A mistake that the recorded values cannot decide, and the values that would."""

    mistake: str
    record: tuple[str, ...]


def examine_power(
    report: RunReport, trace: Trace, recorded: Recording, config: ModelConfig | None = None
) -> RunReport:
    """Returns a report of noise with the mistakes that it does not exclude and the values that would; where
    the numbers show a mistake below the error budget, the report of that bug."""
    if report.verdict not in (Verdict.NOISE, Verdict.LOW_PRECISION):
        return report
    tape = trace.tape
    theirs = {tape.resolve(name): value for name, value in reversed([*recorded.items()])}
    examination = _Examination(tape, theirs, config)
    possible: list[Possible] = []
    names = {tape.resolve(value.name): value.name for value in reversed(report.values)}
    for kind in find_kinds(reversed(names), tape, theirs):
        if theirs[kind[0]].type not in (*NARROW, "float32"):
            continue
        named, undecided = examination.examine(kind)
        for name, mistakes in named:
            return _name_bug(report, names[name], mistakes)
        possible += undecided
    return replace(report, undecided=_by_value(possible))


def _name_bug(report: RunReport, bug: str, mistakes: Sequence[str]) -> RunReport:
    marked = (replace(value, fits=mistakes[0] if value.name == bug else "") for value in report.values)
    return replace(report, values=tuple(marked), explained_by=tuple(mistakes))


def _by_value(possible: Sequence[Possible]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Returns the values to record, each with the mistakes that it would decide."""
    shown: dict[str, list[str]] = {}
    for entry in possible:
        for name in entry.record:
            shown.setdefault(name, [])
        shown[entry.record[-1]].append(entry.mistake)
    return tuple((name, tuple(dict.fromkeys(mistakes))) for name, mistakes in shown.items())


# ---- mistakes


@dataclass(frozen=True)
class _Hypothesis:
    """A mistake: the steps that it changes, and how they are computed with it."""

    name: str
    variant: Variant
    low: Dtype | None = None
    """The type in which these steps round every operation; None for a mistake in the formula."""

    def run(self, span: Tape, right: Mapping[str, Array]) -> Array | None:
        """Returns the last value of a span with the mistake, None where it cannot be computed. `right` has
        all values without it: only the steps after the change are computed again."""
        values, changed = {**self.variant.tables, **right}, set[str]()
        try:
            with np.errstate(all="ignore"):
                for read, step in span.steps.items():
                    if read in self.variant.steps:
                        values[read] = self._compute(self.variant.steps[read], values)
                    elif changed.isdisjoint(step.inputs):
                        continue
                    else:
                        values[read] = compute_exactly(step, [values[x] for x in step.inputs])
                    changed.add(read)
        except (PellucidError, *SHAPE_ERRORS):
            return None
        return values[[*span.steps][-1]]

    def _compute(self, step: Step, values: Mapping[str, Array]) -> Array:
        inputs = [values[read] for read in step.inputs]
        if self.low is None:
            return compute_exactly(step, inputs)
        return compute_rounded(step, inputs, self.low, accumulates=True)


def _lower_precisions(tape: Tape, dtype: Dtype) -> Iterator[_Hypothesis]:
    """Yields norms, softmax and sums in 16 bits: the type of the run, or bfloat16 in one of float32."""
    low, steps = dtype if dtype.name in NARROW else BY_NAME["bfloat16"], tape.steps.items()
    norms = {name: step for name, step in steps if step.op.name in STATISTICS and step.phase == "fwd"}
    softmaxes = {name: step for name, step in steps if step.op.name == "softmax"}
    sums = {
        name: step
        for name, step in steps
        if step.op.name == "einsum"
        and step.phase == "fwd"
        and any(len(tape.values[read].shape) == 2 for read in step.inputs if tape.roles[read] == "param")
    }
    for text, chosen in (("norm", norms), ("softmax", softmaxes), ("sums of products", sums)):
        yield _Hypothesis(f"{text} in {low.name}", Variant("", chosen), low)


def _best_names(found: Sequence[tuple[Outcome, str]]) -> list[str]:
    """Returns the mistakes that explain the most of the error, the best first; if none does with its own
    size, that the error is like the best's."""
    ranked = sorted(found, key=lambda entry: -entry[0].explained)
    best = ranked[0][0].explained
    fitting = [name for outcome, name in ranked if outcome.has_size and outcome.explained > 0.9 * best]
    return [*dict.fromkeys(fitting)] or [f"an error like that of {ranked[0][1]}"]


# ---- the examination


class _Examination:
    """Tries every usual mistake on the recorded values of a run."""

    def __init__(self, tape: Tape, theirs: Recording, config: ModelConfig | None) -> None:
        self.tape, self.theirs = tape, theirs
        narrow = [value.dtype for value in theirs.values() if value.type in NARROW]
        self.program = RoundedProgram(tape, max(narrow, key=lambda dtype: dtype.roundoff, default=None))
        self.mistakes = [
            _Hypothesis(describe(name, variant), variant)
            for name in MISTAKES
            for variant in find_variants(name, Program(tape, config))
        ]

    def examine(self, names: Sequence[str]) -> tuple[list[tuple[str, list[str]]], list[Possible]]:
        """Returns the values that show a mistake, with the names that fit, and what nothing decides."""
        spans = [self.program.cut(name, self.theirs) for name in names]
        numbers = sum(spans[0].values[read].size for read in spans[0].values)
        size = numbers if len(spans[0].steps) > MAX_STEPS else 0
        streams = [name for name in spans[0].steps if name.endswith("resid_post")] or [*spans[0].steps]
        if size > MAX_NUMBERS:
            return [], [Possible("any mistake in several layers", (generalize(streams[0]),))]
        evidence = [gather(name, span, self.theirs) for name, span in zip(names, spans, strict=True)]
        named: dict[str, list[tuple[Outcome, str]]] = {}
        undecided: list[Possible] = []
        lower = [*_lower_precisions(self.tape, self.theirs[names[0]].dtype)]
        if size > MAX_ROUNDED and self.theirs[names[0]].type in NARROW:
            undecided.append(Possible("a lower precision in several layers", (generalize(streams[0]),)))
        for hypothesis in [*self.mistakes, *(lower if size <= MAX_ROUNDED else ())]:
            outcomes = [_weigh(hypothesis, seen) for seen in evidence]
            for name, outcome in zip(names, outcomes, strict=True):
                if outcome.said == "named":
                    named.setdefault(name, []).append((outcome, hypothesis.name))
            is_open = OPEN in outcomes and {outcome.said for outcome in outcomes} <= {"open", ""}
            if is_open and (record := self._find_deciding(hypothesis, evidence[outcomes.index(OPEN)])):
                undecided.append(Possible(hypothesis.name, record))
        return [(name, _best_names(found)) for name, found in named.items()], undecided

    def _find_deciding(self, hypothesis: _Hypothesis, seen: SpanEvidence) -> tuple[str, ...]:
        """Returns the fewest further values that would decide whether the mistake was made, none where no
        value of this type would."""
        steps = seen.span.steps
        hidden = [name for name in steps if name != seen.name]
        touched = [name for name in hidden if name in hypothesis.variant.steps]
        wrong = hypothesis.run(seen.span, seen.right)
        is_nil = wrong is None or bool((np.abs(seen.in_units(wrong)) <= NIL).all())
        if is_nil and not any(name.endswith(CACHED) for name in touched):
            return ()  # another way to the same result, for later tokens too
        for with_inputs in (False, True):
            for name in _pick_layers(dict.fromkeys(_value_to_record(name, hidden) for name in touched)):
                inputs = [read for read in steps[name].inputs if read in hidden]
                if is_nil and not inputs:
                    continue  # another way to the same result, from recorded inputs
                wanted = [*(inputs if with_inputs else ()), name]
                if self._would_decide(hypothesis, seen, wanted):
                    return tuple(map(generalize, wanted))
        return ()

    def _would_decide(self, hypothesis: _Hypothesis, seen: SpanEvidence, wanted: Sequence[str]) -> bool:
        """Returns whether a run with the mistake would be named if these values were recorded too."""
        *inputs, name = wanted
        held = {
            read: RecordedValue(round_to(seen.right[read], seen.dtype), seen.dtype.name) for read in inputs
        }
        recorded = {**self.theirs, **held}
        span = self.program.cut(name, recorded)
        wrong = hypothesis.run(span, run_span(span, recorded))
        if wrong is None or wrong.size < MIN_CELLS:
            return False
        wrong = round_to(wrong, seen.dtype)
        made = gather(name, span, {**recorded, name: RecordedValue(wrong, seen.dtype.name)})
        if hypothesis.low is None:
            return made.weigh(wrong).said == "named" or made.is_seen(wrong)
        share = measure_share(wrong, made.exact, made.healthy[-1], seen.dtype)
        return share is not None and share.is_low


CACHED = (".k", ".k_normed", ".k_rot", ".v")
"""The values that a cache keeps for later tokens."""
LAYERS = 4
"""Layers that are asked whether a further value of theirs would decide."""
NIL = 1e-3
"""An effect of less than this part of a healthy error is none: the same result by another way."""


def _weigh(hypothesis: _Hypothesis, seen: SpanEvidence) -> Outcome:
    is_low = hypothesis.low is not None
    if seen.span.steps.keys().isdisjoint(hypothesis.variant.steps):
        return ABSENT
    if is_low and (len(seen.span.steps) == 1 or is_one_norm(seen.span, seen.name)):
        return ABSENT  # nothing of other steps is hidden: `library_precision.py` judges it
    if (wrong := hypothesis.run(seen.span, seen.right)) is None:
        return ABSENT
    return seen.weigh(wrong) if not is_low else EXCLUDED if seen.is_smaller_than(wrong) else OPEN


def _pick_layers(names: Iterable[str]) -> list[str]:
    """Returns the names, of those that differ by their layer alone no more than LAYERS, from first to last:
    the answer is a pattern for all layers, and each name that is tried costs a run up to it.

    >>> _pick_layers(["embedded", *(f"blocks.{layer}.attn.q_rot" for layer in range(30))])[::2]
    ['embedded', 'blocks.9.attn.q_rot', 'blocks.29.attn.q_rot']
    """
    layers: dict[str, list[str]] = {}
    for name in (listed := list(names)):
        layers.setdefault(generalize(name), []).append(name)
    shares = [step / (LAYERS - 1) for step in range(LAYERS)]
    picked = {found[int(share * (len(found) - 1))] for found in layers.values() for share in shares}
    return [name for name in listed if name in picked]


def _value_to_record(name: str, hidden: Sequence[str]) -> str:
    """Returns what a program can record of a step: the result of a norm, not the numbers inside it."""
    out = f"{name.rpartition('.')[0]}.out"
    return out if out in hidden else name

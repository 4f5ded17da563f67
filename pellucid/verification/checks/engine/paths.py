"""Checks every path on which people run a model, in every type: each by local replay of its own numbers.

`generate`, `score`, the server and training run fused kernels, batches, padding, packed rows and caches. A
path is run and recorded as it is (`observed.py`), laid out text by text, and each value is recomputed in
float64 from that run's own inputs to it. The same path is run once more unwatched: recording must not change
a bit.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from pellucid.base.dtypes import dtype_name
from pellucid.engine.cache import Cache
from pellucid.engine.taps import record
from pellucid.engine.transformer import Transformer
from pellucid.explanation.engines import applied_weights, with_values
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape
from pellucid.reference.training import hold_weights
from pellucid.verification.checks.check import Subject
from pellucid.verification.checks.engine.observed import (
    RecordedTexts,
    Text,
    cut_at_overflow,
    find_overflow,
    find_wrong_keys,
    join_texts,
    split_positions,
)
from pellucid.verification.foreign_values import RecordedValue
from pellucid.verification.judge_run import judge_run
from pellucid.verification.run_report import RunReport
from pellucid.verification.verdict import Finding, Verdict

ROUNDING = "(8 + √n) units of Σ|terms|; 16 bits: one rounding"
NO_CACHE = "its mask is not causal, so it cannot have a cache"
LOGITS = ("unembedded", "logits", "probs")


class PathRun(NamedTuple):
    """A run of a path: its texts with every recorded value (none where it ran unwatched), the logits of
    each call, the first key or value that a cache returned other than it was computed, and the calls that
    asked for the last logits of their texts alone."""

    texts: list[RecordedTexts]
    logits: list[Tensor]
    wrong_keys: str = ""
    last_only: frozenset[int] = frozenset()


RunPath = Callable[[Subject, Transformer, bool], PathRun]
"""Runs a path on a module, watched or not."""


def judge_path(run: RunPath, has_cache: bool = False) -> Callable[[Subject], Finding]:
    """Returns the measurement of a path in every type: the first failure, else how much of the error budget
    is used."""

    def measure(subject: Subject) -> Finding:
        subject = subject.excerpt
        if has_cache and subject.config.mask.bidirectional_prefix > subject.config.context_length // 2:
            return Finding(Verdict.SKIPPED, NO_CACHE)
        used = UsedBudget(subject)
        for dtype in subject.dtypes:
            module = subject.module(dtype)
            with torch.no_grad():
                watched, plain = run(subject, module, True), run(subject, module, False)
            if (changed := find_changed(module, watched, plain)) is not None:
                return changed
            judge = partial(judge_texts, subject, module)
            if (found := used.judge(dtype_name(dtype), watched, judge)) is not None:
                return found
        return used.summarize()

    return measure


class UsedBudget:
    """The largest share of the error budget that each type uses, and the errors that would have been seen."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.shares: dict[str, float] = {}
        self.limits: dict[str, float] = {}
        self.overflows: dict[str, str] = {}
        self.tokens = 0

    def judge(self, name: str, run: PathRun, judge: Callable[[RecordedTexts], RunReport]) -> Finding | None:
        """Judges what a path computed in a type; returns the first failure."""
        if run.wrong_keys:
            message = "the cache returned other numbers than were computed for this token."
            return Finding(Verdict.BUG, f"in {name}: other bits", run.wrong_keys, message)
        for texts in run.texts:
            if not (report := judge(texts)):
                return in_type(report.summarize(), name)
            self.add(name, report, texts)
        return None

    def add(self, name: str, report: RunReport, texts: RecordedTexts) -> None:
        is_first = not self.shares or next(iter(self.shares)) == name
        self.tokens += len(texts.ids) * len(texts.ids[0]) if is_first else 0
        worst = max((value.share for value in report.values), default=0.0)
        limit = max((value.limit for value in report.values), default=0.0)
        self.shares[name] = max(self.shares.get(name, 0.0), worst)
        self.limits[name] = max(self.limits.get(name, 0.0), limit)
        if overflow := find_overflow(texts.values):
            self.overflows.setdefault(name, overflow)

    def summarize(self) -> Finding:
        used = ", ".join(f"{share:.0%} in {name}" for name, share in self.shares.items())
        limits = ", ".join(f"{limit:.0e}" for limit in self.limits.values())
        measured = f"{used} of the bound; a relative error of {limits} would show; {self.tokens:,} tokens"
        if part := self.subject.describe_excerpt():
            measured += f"; {part}"
        for name, value in self.overflows.items():
            measured += f"; {name} cannot hold {value}: it overflows, as its inputs say"
        return Finding(Verdict.NOISE if any(self.shares.values()) else Verdict.EQUAL, measured)


def judge_texts(subject: Subject, module: Transformer, texts: RecordedTexts) -> RunReport:
    """Judges what the module computed for some texts by the specification's pass over them."""
    program = subject.program_of(texts.ids)
    if "logits" not in texts.values:
        program = remove_logits(program)
    tape = hold_weights(with_values(program, applied_weights(module)))
    return judge_values(subject.trace(tape, texts.ids[0]), texts.values, texts.absent)


def judge_values(
    trace: Trace, values: Mapping[str, RecordedValue], absent: Mapping[str, Array] | None = None
) -> RunReport:
    """Judges values of our own engine, which rounds each once, by the program of a trace; `absent` says
    where [B T] values were not computed."""
    kept = cut_at_overflow(values) if find_overflow(values) else values
    places = {name: at for name, at in (absent or {}).items() if name in kept and name in trace.tape}
    return judge_run(trace, kept, rounds_once=True, is_ours=True, absent=places)


def remove_logits(program: Tape) -> Tape:
    """Returns the program up to the last hidden states."""
    tape = with_values(program, {})
    tape.values = {name: value for name, value in tape.values.items() if name not in LOGITS}
    tape.steps = {name: step for name, step in tape.steps.items() if name not in LOGITS}
    return tape


def in_type(finding: Finding, name: str) -> Finding:
    """Returns the finding with the type in its figure."""
    return replace(finding, measured=f"in {name}: {finding.measured}")


def find_changed(module: Transformer, watched: PathRun, plain: PathRun) -> Finding | None:
    """Returns BUG where the unwatched run gave other logits than the watched one; on a GPU, whose sums are
    not always in one order, None."""
    if module.device.type != "cpu":
        return None
    for call, (one, other) in enumerate(zip(watched.logits, plain.logits, strict=True)):
        if one.shape != other.shape or not torch.equal(one.nan_to_num(), other.nan_to_num()):
            message = "the same calls give other logits where no recording is open."
            at = "logits of the last tokens alone" if call in watched.last_only else "logits"
            return Finding(Verdict.BUG, "a recording changes the logits", at, message)
    return None


# ---- paths of one pass


def watch_pass(
    module: Transformer,
    ids: list[list[int]],
    spans: Iterable[tuple[list[int], int, range]],
    is_watched: bool,
    **more: Tensor,
) -> PathRun:
    """Runs one pass over ids [B T]; `spans` are its texts: ids, row and columns."""
    given = torch.tensor(ids, device=module.device)
    if not is_watched:
        return PathRun([], [module(given, **more)])
    with record(fused=True, model=module) as seen:
        logits = module(given, **more)
    texts: list[tuple[list[int], Text]] = [
        (text, split_positions(dict(seen), row, columns, len(ids[0]))) for text, row, columns in spans
    ]
    return PathRun(list(join_texts(texts)), [logits])


def run_fused(subject: Subject, module: Transformer, is_watched: bool) -> PathRun:
    ids = subject.ids
    return watch_pass(module, [ids], [(ids, 0, range(len(ids)))], is_watched)


def run_batched(subject: Subject, module: Transformer, is_watched: bool) -> PathRun:
    rows = [subject.make_ids(subject.length, seed) for seed in (1, 0, 2)]
    spans = [(ids, row, range(len(ids))) for row, ids in enumerate(rows)]
    return watch_pass(module, rows, spans, is_watched)


def run_padded(subject: Subject, module: Transformer, is_watched: bool) -> PathRun:
    """Pads on the left and on the right; the tokens keep their positions."""
    room = min(5, subject.config.context_length - 1)
    length = min(subject.length, subject.config.context_length - room)
    if room < 1 or length < 1:
        return run_fused(subject, module, is_watched)
    ids, other = subject.make_ids(length), subject.make_ids(length, 1)
    device = module.device
    rows = [[0] * room + ids, other + [0] * room]
    is_token = torch.tensor([[0] * room + [1] * length, [1] * length + [0] * room], device=device)
    positions = (is_token.cumsum(-1) - 1).clamp_min(0)
    spans = [(ids, 0, range(room, room + length)), (other, 1, range(length))]
    return watch_pass(module, rows, spans, is_watched, padding=is_token.bool(), positions=positions)


def run_packed_rows(subject: Subject, module: Transformer, is_watched: bool) -> PathRun:
    """Packs three texts of different lengths into each of two rows, as training does."""
    length = subject.length
    rows, numbers, spans = list[list[int]](), list[list[int]](), list[tuple[list[int], int, range]]()
    for row, borders in enumerate(([0, length // 4, length // 4 + 1, length], [0, length // 2, length])):
        ids = subject.make_ids(length, row)
        rows.append(ids)
        numbers.append([sum(place >= border for border in borders) for place in range(length)])
        pairs = itertools.pairwise(borders)
        spans += [(ids[start:end], row, range(start, end)) for start, end in pairs if end > start]
    segments = torch.tensor(numbers, device=module.device)
    return watch_pass(module, rows, spans, is_watched, segments=segments)


def run_trained(subject: Subject, module: Transformer, is_watched: bool) -> PathRun:
    """The pass of a training step: gradients are recorded, and products of one input are joined."""
    with torch.enable_grad():
        return run_batched(subject, module, is_watched)


# ---- paths with a cache


def run_cached(subject: Subject, module: Transformer, is_watched: bool) -> PathRun:
    """Prefill of rows of different lengths at once, padded on the right, then single tokens."""
    first = max(int(subject.config.mask.bidirectional_prefix), subject.length // 2, 1)
    rows = [subject.make_ids(subject.length, seed) for seed in range(3)]
    lengths = [first, max(first - 3, int(subject.config.mask.bidirectional_prefix), 1), first]
    calls = [(first, lengths), *[(1, [1, 1, 1])] * (subject.length - first)]
    return _run_calls(module, rows, calls, is_watched)


def run_chunked_prefill(subject: Subject, module: Transformer, is_watched: bool) -> PathRun:
    """Prefill of one row in chunks of different lengths, one of them a single token."""
    first = max(int(subject.config.mask.bidirectional_prefix), 1)
    ids, lengths = subject.make_ids(subject.length), [first]
    for size in (1, 7, 2, 16):
        lengths.append(min(size, subject.length - sum(lengths)))
    lengths.append(subject.length - sum(lengths))
    return _run_calls(module, [ids], [(count, [count]) for count in lengths if count], is_watched)


def _run_calls(
    module: Transformer, rows: list[list[int]], calls: Iterable[tuple[int, list[int]]], is_watched: bool
) -> PathRun:
    """Reads rows into a cache, call by call: the columns of the call, and how many of them are tokens."""
    cache = Cache(module.config, len(rows), len(rows[0]), dtype=module.dtype, device=module.device)
    texts: list[Text] = [[] for _ in rows]
    logits, wrong_keys = [], ""
    for width, counts in calls:
        starts = cache.host_lengths.tolist()
        parts = [row[start : start + count] for row, start, count in zip(rows, starts, counts, strict=True)]
        ids = torch.tensor([[*part, *[0] * (width - len(part))] for part in parts], device=module.device)
        lengths = None if all(count == width for count in counts) else counts
        if not is_watched:
            logits.append(module.forward_cached(ids, cache, lengths))
            continue
        with record(fused=True, model=module) as seen:
            logits.append(module.forward_cached(ids, cache, lengths))
        for row, count in enumerate(counts):
            texts[row] += split_positions(dict(seen), row, range(count), width)
            if cache.ring is None and not wrong_keys:
                wrong_keys = find_wrong_keys(seen, row, texts[row], module.dtype)
    read = [row[: len(text)] for row, text in zip(rows, texts, strict=True)]
    joined = list(join_texts([*zip(read, texts, strict=True)])) if is_watched else []
    return PathRun(joined, logits, wrong_keys)

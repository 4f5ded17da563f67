"""Checks the log of a run: every figure that follows from others of the log, the recipe or the data; and a
logged evaluation, whose loss, accuracy and bits per byte are computed once more from its model's logits, and
the loss by the specification."""

import contextlib
import itertools
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid.base.formatting import pluralize
from pellucid.base.names import IGNORE_INDEX
from pellucid.config import ModelConfig
from pellucid.data.rows import Batch, Rows
from pellucid.data.rows.packed import Packed
from pellucid.data.rows.padded import Padded
from pellucid.data.rows.records import Records
from pellucid.data.rows.windows import Windows
from pellucid.engine.transformer import Transformer
from pellucid.formats import model_folder
from pellucid.formats.checkpoint_manifest import BEST, MODEL, checkpoint_name
from pellucid.reference.training import Weights, forward
from pellucid.training.device import resolve_device, resolve_dtype
from pellucid.training.history.log import Line
from pellucid.verification.checks.training.batch_gradients import (
    GROUP_TOKENS,
    Problem,
    cut_batch,
    join_rows,
    take_tokens,
)
from pellucid.verification.checks.training.gradient_reference import SPECIFICATION_COST, compute_reference
from pellucid.verification.checks.training.run_subject import RunSubject
from pellucid.verification.run_report import format_apart
from pellucid.verification.runs.rebuilt_step import to_float64
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


GROUP_LOGITS = 1 << 24
"""Logits that are held at once, in float64."""
TOLERANCES = {"float64": 1e-9, "float32": 2e-5, "bfloat16": 5e-3}
"""How far a loss may be from the right one, relatively, by the type in which the run computes."""


class LoggedEvaluation(NamedTuple):
    """A logged evaluation, and the model that had it."""

    line: Line
    config: ModelConfig
    weights: Weights

    @property
    def step(self) -> int:
        return int(self.line["step"])

    @property
    def loss(self) -> float:
        return float(self.line["loss"])


class Scores(NamedTuple):
    """The mean loss of logits, and the fraction of targets that are the most likely token: the least and the
    most, where rounding decides."""

    loss: float
    least_accuracy: float
    most_accuracy: float


def find_evaluation(subject: RunSubject) -> LoggedEvaluation | None:
    """Returns the newest logged validation loss whose model is there, in a checkpoint or as the best one."""
    past, folder = subject.past, subject.past.folder
    best = folder.read_best()
    for line in reversed(past.lines):
        if line.get("kind") != "evaluation" or not isinstance(line.get("loss"), float):
            continue
        found = folder.checkpoints / checkpoint_name(line["step"])
        path = found / MODEL
        if not found.is_dir():
            if best is None or best.step != line["step"]:
                continue
            path = folder.path / BEST
        opened = model_folder.read(path)
        return LoggedEvaluation(line, opened.config, opened.weights)
    return None


def measure_validation_loss(subject: RunSubject) -> Finding:
    """Evaluates the model of a logged validation loss again, and some of its rows by the specification."""
    recipe, validation = subject.past.recipe, subject.past.source.validation
    if not validation.targets:
        return Finding(Verdict.SKIPPED, "the run holds out no text")
    logged = find_evaluation(subject)
    if logged is None:
        return Finding(Verdict.SKIPPED, "no logged evaluation has its checkpoint")
    device = resolve_device(recipe.train.device)
    dtype = resolve_dtype(device, recipe.train.dtype, recipe.train.weights)
    weights = {name: logged.weights[name] for name in logged.config.parameters()}
    module = Transformer.from_weights(
        logged.config, weights, device, _weights_dtype(dtype, recipe.train.weights)
    )
    batches = list(itertools.islice(validation, recipe.evaluation.batches or None))
    again = _evaluate(module.eval(), batches, dtype)
    few = _choose_rows(batches, sum(weight.size for weight in weights.values()))
    wide = {name: to_float64(parameter) for name, parameter in module.named_parameters()}
    right, fast = _evaluate_by_specification(logged.config, wide, few), _evaluate(module, few, dtype).loss
    rows, tokens = sum(len(batch.ids) for batch in batches), sum(batch.ids.size for batch in few)
    how = f"{pluralize(rows, 'row')}, {tokens:,} tokens by the specification"
    for got, wanted, words in (
        (fast, right, f"of {tokens:,} tokens, the evaluation gives {{}}; the specification gives {{}}"),
        (logged.loss, again.loss, f"the log has {{}} at step {logged.step}; the model of that step has {{}}"),
    ):
        if not abs(got - wanted) <= TOLERANCES[dtype] * abs(wanted):
            # more than usual: what rounding does to this very model decides
            reference = compute_reference(
                Problem(logged.config, wide, join_rows(few)), dtype, device
            ).resample()
            if abs(got - wanted) <= reference.loss_allowed:
                continue
            if reference.why_undecided:
                return Finding(Verdict.UNKNOWN, reference.why_undecided)
            message = words.format(*format_apart(got, wanted))
            return Finding(Verdict.BUG, f"{abs(got - wanted):.2g}", "validation loss", message)
    if found := _judge_accuracy(logged, again) or _judge_bits(subject, logged):
        return found
    error = max(abs(logged.loss - again.loss) / abs(again.loss or 1), abs(fast - right) / abs(right or 1))
    measured = f"{error:.1e} of {logged.loss:.5g} at step {logged.step}; {how}"
    verdict = Verdict.EQUAL if dtype == "float64" else Verdict.NOISE
    return Finding(verdict, measured, allowed=f"{TOLERANCES[dtype]:g}")


def _weights_dtype(dtype: str, weights: str) -> torch.dtype:
    if dtype == "float64":
        return torch.float64
    return torch.bfloat16 if weights == "bfloat16" else torch.float32


def _evaluate(module: Transformer, batches: list[Batch], dtype: str) -> Scores:
    """Returns the scores of the logits of all counted targets, as the run computes the logits; what follows
    from them is computed here, in float64."""
    is_narrow = dtype == "bfloat16" and module.dtype != torch.bfloat16
    total, sure, possible, count = 0.0, 0, 0, 0
    for batch in batches:
        size = max(1, GROUP_LOGITS // (batch.ids.shape[1] * module.config.vocab_size))
        for first in range(0, len(batch.ids), size):
            rows = cut_batch(batch, slice(first, first + size))
            ids, segments = (
                None if array is None else torch.as_tensor(array, device=module.device).long()
                for array in (rows.ids, rows.segments)
            )
            autocast = torch.autocast(module.device.type, torch.bfloat16)
            with autocast if is_narrow else contextlib.nullcontext(), torch.no_grad():
                found: Tensor = module(ids, segments=segments)
            here = rows.targets != IGNORE_INDEX
            logits, targets = to_float64(found)[here], rows.targets[here]
            own, largest = logits[np.arange(len(targets)), targets], logits.max(axis=-1, initial=-np.inf)
            total += float((largest - own + np.log(np.exp(logits - largest[:, None]).sum(axis=-1))).sum())
            margin = TOLERANCES[dtype] * np.abs(largest)
            np.put_along_axis(logits, targets[:, None], -np.inf, axis=-1)
            others = logits.max(axis=-1, initial=-np.inf)
            sure += int((own > others + margin).sum())
            possible += int((own >= others - margin).sum())
            count += len(targets)
    return Scores(*(value / (count or math.nan) for value in (total, sure, possible)))


def _judge_accuracy(logged: LoggedEvaluation, again: Scores) -> Finding | None:
    got = get_number(logged.line, "accuracy")
    if math.isnan(got) or again.least_accuracy - 1e-12 <= got <= again.most_accuracy + 1e-12:
        return None
    message = f"the log has an accuracy of {got:.6g} at step {logged.step}; of the targets, "
    message += f"{again.least_accuracy:.6g} are the most likely token of the model of that step"
    return Finding(Verdict.BUG, f"{got:.4g} for {again.least_accuracy:.4g}", "accuracy", message)


def _judge_bits(subject: RunSubject, logged: LoggedEvaluation) -> Finding | None:
    got, size = get_number(logged.line, "bits_per_byte"), count_bytes_per_token(subject)
    if math.isnan(got) or size is None:
        return None
    wanted = logged.loss / math.log(2) / size
    if math.isclose(got, wanted, rel_tol=1e-9):
        return None
    ours, right = format_apart(got, wanted)
    message = (
        f"the log has {ours} bits per byte at step {logged.step}; {logged.loss:.6g} nats / ln 2 / {size:.6g} "
    )
    message += f"bytes of a target are {right}"
    return Finding(Verdict.BUG, f"{ours} for {right}", "bits_per_byte", message)


def count_bytes_per_token(subject: RunSubject) -> float | None:
    """Returns the bytes of text of a validation target on average, from the targets themselves: tokens that
    begin or end a text have none. None where tokens do not show the bytes of their text."""
    source, past = subject.past.source, subject.past
    tokenizer = source.tokenizer
    if past.recipe.start or not source.validation.targets:
        return None
    targets = np.concatenate([batch.targets[batch.targets != IGNORE_INDEX] for batch in source.validation])
    if tokenizer.unknown_id is not None and (targets == tokenizer.unknown_id).any():
        return None
    ids, counts = np.unique(targets, return_counts=True)
    own = [0 if id in (source.begin, source.end) else len(tokenizer.bytes_of(id)) for id in ids.tolist()]
    return float(np.dot(own, counts)) / len(targets)


def _choose_rows(batches: list[Batch], size: int) -> list[Batch]:
    """Returns all batches where the specification can afford them, else tokens of the first and the last: of
    several batches, a mean of means is not the mean."""
    most = int(SPECIFICATION_COST / size)
    if sum(batch.ids.size for batch in batches) <= most:
        return batches
    chosen = [batches[0], batches[-1]][: len(batches)]
    return [take_tokens(batch, max(2, most // len(chosen))) for batch in chosen]


def _evaluate_by_specification(config: ModelConfig, weights: Weights, batches: list[Batch]) -> float:
    """Returns the mean negative log-likelihood of the counted targets, Σ nll / n."""
    total, count = 0.0, 0
    for batch in batches:
        size = max(1, GROUP_TOKENS // batch.ids.shape[1])
        for first in range(0, len(batch.ids), size):
            rows = cut_batch(batch, slice(first, first + size))
            if not (counted := int((rows.targets != IGNORE_INDEX).sum())):
                continue
            tape = forward(config, weights, rows.ids, rows.targets, segments=rows.segments)
            total, count = total + float(tape["nll"].sum()), count + counted
    return total / count if count else float("nan")

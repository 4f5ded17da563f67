"""Checks a logged evaluation: loss, accuracy and bits per byte of its model are computed once more from its
logits, and the loss by the specification."""

import contextlib
import itertools
import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid.base.formatting import pluralize
from pellucid.base.names import IGNORE_INDEX
from pellucid.config import ModelConfig
from pellucid.data.rows import Batch
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
from pellucid.verification.checks.training.log_figures import get_number
from pellucid.verification.checks.training.run_subject import RunCheck, RunSubject
from pellucid.verification.run_report import format_apart
from pellucid.verification.verdict import Finding, Verdict

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
    wide = {name: _to_float64(parameter) for name, parameter in module.named_parameters()}
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


def _to_float64(tensor: Tensor) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
    return tensor.detach().double().cpu().numpy()


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
            logits, targets = _to_float64(found)[here], rows.targets[here]
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


CHECKS = (
    RunCheck(
        "validation loss",
        "The logged validation loss is that of the saved model in evaluation mode, and of the specification.",
        "2e-05",
        measure_validation_loss,
        trusts="the fast engine's logits, which the specification computes for some rows",
    ),
)

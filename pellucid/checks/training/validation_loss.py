"""Checks a logged validation loss: its model is evaluated once more, and by the specification."""

import contextlib
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid.checks.training.batch_gradients import GROUP_TOKENS, Problem, cut_batch, join_rows, take_tokens
from pellucid.checks.training.gradient_reference import SPECIFICATION_COST, compute_reference
from pellucid.checks.training.run_subject import RunCheck, RunSubject
from pellucid.config import ModelConfig
from pellucid.data.rows import Batch
from pellucid.evaluation.loss import compute_loss
from pellucid.format import pluralize
from pellucid.interop import model_folder
from pellucid.judge.run_report import format_apart
from pellucid.judge.verdict import Finding, Verdict
from pellucid.model.transformer import Transformer
from pellucid.names import IGNORE_INDEX
from pellucid.reference.training import Weights, forward
from pellucid.training.device import resolve_device, resolve_dtype
from pellucid.training.saving.manifest import BEST, MODEL, checkpoint_name

TOLERANCES = {"float64": 1e-9, "float32": 2e-5, "bfloat16": 5e-3}
"""How far a loss may be from the right one, relatively, by the type in which the run computes."""


class LoggedEvaluation(NamedTuple):
    """A logged validation loss, and the model that had it."""

    step: int
    loss: float
    config: ModelConfig
    weights: Weights


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
        return LoggedEvaluation(line["step"], line["loss"], opened.config, opened.weights)
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
    right, fast = _evaluate_by_specification(logged.config, wide, few), _evaluate(module, few, dtype)
    rows, tokens = sum(len(batch.ids) for batch in batches), sum(batch.ids.size for batch in few)
    how = f"{pluralize(rows, 'row')}, {tokens:,} tokens by the specification"
    for got, wanted, words in (
        (fast, right, f"of {tokens:,} tokens, the evaluation gives {{}}; the specification gives {{}}"),
        (logged.loss, again, f"the log has {{}} at step {logged.step}; the model of that step has {{}}"),
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
    error = max(abs(logged.loss - again) / abs(again or 1), abs(fast - right) / abs(right or 1))
    measured = f"{error:.1e} of {logged.loss:.5g} at step {logged.step}; {how}"
    verdict = Verdict.EQUAL if dtype == "float64" else Verdict.NOISE
    return Finding(verdict, measured, allowed=f"{TOLERANCES[dtype]:g}")


def _weights_dtype(dtype: str, weights: str) -> torch.dtype:
    if dtype == "float64":
        return torch.float64
    return torch.bfloat16 if weights == "bfloat16" else torch.float32


def _to_float64(tensor: Tensor) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
    return tensor.detach().double().cpu().numpy()


def _evaluate(module: Transformer, batches: list[Batch], dtype: str) -> float:
    """Returns the mean loss over the counted targets, as the run computes it."""
    is_narrow = dtype == "bfloat16" and module.dtype != torch.bfloat16

    def run(ids: Tensor, segments: Tensor | None = None) -> Tensor:
        autocast = torch.autocast(module.device.type, torch.bfloat16)
        with autocast if is_narrow else contextlib.nullcontext():
            logits: Tensor = module(ids, segments=segments)
            return logits

    def tensors() -> Iterator[tuple[Tensor, ...]]:
        for batch in batches:
            arrays = (array for array in (batch.ids, batch.targets, batch.segments) if array is not None)
            yield tuple(torch.as_tensor(array, device=module.device).long() for array in arrays)

    return compute_loss(run, tensors(), module.config.vocab_size).loss


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
    ),
)

"""The evaluation of a model during its training: validation loss, and a generated sample."""

import itertools
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from pellucid.base.errors import ConfigError, PellucidError
from pellucid.base.names import IGNORE_INDEX
from pellucid.data.sources.source import Source
from pellucid.engine.transformer import Transformer
from pellucid.evaluation.loss import bits_per_byte, compute_loss, fraction_learned, gap_to_floor
from pellucid.generation.constraints import compile_constraint
from pellucid.generation.context import check_fits
from pellucid.generation.request import Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.text.sample import first_words, fit_prompt
from pellucid.training.events import Evaluated
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.sections import EvaluationSettings
from pellucid.training.state import TrainState

PROMPT_TOKENS = 80
"""Tokens of the validation text in which the beginning of a sentence is looked for."""


def evaluate(state: TrainState) -> Evaluated:
    """Evaluates the model, with averaged weights where the run averages them, and counts the evaluation."""
    model, source, settings = state.model, state.source, state.recipe.evaluation
    model.eval()
    with state.average.use(), state.parallel.gather_weights():
        loss, accuracy = compute_loss(
            state.objective.logits, _batches(state), source.tokenizer.vocab_size, state.ranks.sum_numbers
        )
        sample = sample_text(model, source, settings)
    model.train()
    return Evaluated(
        state.meters.step,
        loss,
        state.meters.add_evaluation(loss),
        bits_per_byte(loss, source.bytes_per_token),
        gap_to_floor(loss, source.entropy_floor),
        sample,
        fraction_learned(loss, source.bigram_baseline, source.entropy_floor),
        None if math.isnan(accuracy) else accuracy,
    )


def _batches(state: TrainState) -> Iterator[tuple[Tensor, ...]]:
    """Yields ids, targets and, of packed rows, segments: this rank's rows of the validation batches."""
    for batch in itertools.islice(state.source.validation, state.recipe.evaluation.batches or None):
        rows = state.ranks.local_slice(len(batch.ids))
        arrays = [array for array in (batch.ids, batch.targets, batch.segments) if array is not None]
        yield tuple(torch.as_tensor(array[rows], device=state.device).long() for array in arrays)


@torch.no_grad()
def sample_text(model: Transformer, source: Source, settings: EvaluationSettings) -> str:
    """Returns a prompt and what the model generates after it, with the same seed at every evaluation.

    For a task the prompt is a validation problem, and what follows the model's answer. Nothing is generated
    by a model whose positions see later ones.
    """
    config, tokenizer = model.config, source.tokenizer
    if not settings.sample or config.mask.bidirectional_prefix:
        return ""
    prompt = settings.prompt or source.prompt
    ids = [source.begin] * (not settings.prompt) + tokenizer.encode(prompt)
    if source.opening:
        prompt, ids = source.opening(settings.prompt)
    ids = ids[: config.context_length - 1] or [source.begin]
    return prompt + " " * bool(source.prompt) + continue_prompt(model, source, ids, settings)


def continue_prompt(
    model: Transformer, source: Source, ids: Sequence[int], settings: EvaluationSettings
) -> str:
    """Returns the text that the model generates after these ids, without what ends it."""
    sampling, room = settings.sampling, model.config.context_length
    ends = _end_ids(source, sampling)
    is_bounded = sampling.context == "refuse"
    count = min(settings.sample, room - len(ids)) if is_bounded else settings.sample
    bounded = {"min_new_tokens": min(sampling.min_new_tokens, count), "max_new_tokens": count}
    forced = sampling.forced_tokens[:count]
    sampling = sampling.merge({**bounded, "forced_tokens": forced, "stop_ids": ends})
    capacity = len(ids) + count if is_bounded else room
    engine = Engine(model, source.tokenizer, slots=sampling.beams, capacity=capacity)
    (found,) = engine.add(Request(tuple(ids), sampling), streams=False).result()
    size = source.tokenizer.vocab_size  # a model may have more rows than tokens; those have no text
    text = source.tokenizer.decode([id for id in found.ids if id not in ends and id < size])
    for stop in sampling.stop:
        text = text.partition(stop)[0]
    return text


def _end_ids(source: Source, sampling: Sampling) -> tuple[int, ...]:
    """Returns the tokens that end a sample: those of the settings, or the one that ends a document."""
    own = () if source.end is None else (source.end,)
    return own if sampling.stop_ids is None else sampling.stop_ids


def example_prompt(model: Transformer, source: Source, settings: EvaluationSettings) -> str:
    """Returns a prompt to try the model with: that of its samples, or the first words of a sentence of the
    validation text.

    It is empty where there is none that a person can type, or where the model does not generate text.
    """
    if model.config.mask.bidirectional_prefix:
        return ""
    text, most = settings.prompt or source.prompt, None
    if not text and source.opening:
        text = source.opening("")[0].removesuffix(" → ")
    elif not text and source.validation.rows:
        text = first_words(_validation_text(source), begins_whole=source.entropy_floor is not None)
        most = max(1, model.config.context_length // 2)  # the model is to write something, too
    return fit_prompt(source.tokenizer, text, most)


def _validation_text(source: Source) -> str:
    """Returns the first tokens of the validation text as text."""
    ids: list[int] = []
    for number in range(source.validation.rows):
        ids += [
            int(id) for id in source.validation.row(number).targets if id not in (IGNORE_INDEX, source.end)
        ]
        if len(ids) >= PROMPT_TOKENS:
            break
    return source.tokenizer.decode(ids[:PROMPT_TOKENS])


def check_evaluation(source: Source, recipe: Recipe) -> None:
    """Refuses, before the first step, what an evaluation would fail on."""
    check_patience(recipe, source.validation.targets)
    if not recipe.evaluation.sample:
        return
    if prompt := recipe.evaluation.prompt:
        try:
            source.tokenizer.encode(prompt)
        except PellucidError as error:
            raise ConfigError(f"evaluation.prompt={prompt!r} cannot be encoded: {error}") from None
    sampling = recipe.evaluation.sampling
    try:
        sampling.check_vocabulary(source.tokenizer.vocab_size)
        if sampling.context != "refuse":
            check_fits(1, sampling, recipe.length)
        size, ends = source.tokenizer.vocab_size, _end_ids(source, sampling)
        compile_constraint(sampling, source.tokenizer, size, ends)
    except PellucidError as error:
        raise ConfigError(f"evaluation.sampling.{error}") from None


def check_patience(recipe: Recipe, targets: float) -> None:
    """Refuses to stop early by a validation loss where there is no validation text."""
    if recipe.train.patience and not targets:
        raise ConfigError(
            f"train.patience={recipe.train.patience} needs a validation loss, and data.validation="
            f"{recipe.data.validation:g} holds out no text: use data.validation=0.1, or train.patience=0."
        )

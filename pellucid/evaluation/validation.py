"""How a model is judged on the way: its loss on the text that was held out, and a text of its own."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pellucid.data.sources.source import Source
from pellucid.errors import ConfigError, PellucidError
from pellucid.generation.loop import generate
from pellucid.model.loss import loss
from pellucid.model.transformer import Transformer
from pellucid.names import IGNORE_INDEX
from pellucid.training.distributed.ranks import ALONE, Ranks
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.sections import EvaluationSettings

AT_ONCE = 1 << 28
"""Logits that exist at once, some of them in float32: a whole batch may have too many for any memory."""
WORDS = 5
"""Tokens that are enough to begin a text with."""


@torch.no_grad()
def judge(
    logits: Callable[[Tensor], Tensor],
    source: Source,
    batches: int,
    device: torch.device,
    ranks: Ranks = ALONE,
) -> tuple[float, float]:
    """The mean loss, without smoothing and z-loss, and the share of targets that were the likeliest token.

    Each target is counted once; in so many batches, all where that is 0. Every rank takes its rows of each.
    """
    total, right, count = 0.0, 0, 0
    for i, (ids, targets) in enumerate(source.validation):
        if i >= (batches or math.inf):
            break
        mine, rows = ranks.mine(len(ids)), AT_ONCE // (ids.shape[1] * source.tokenizer.vocab_size) or 1
        split = (torch.as_tensor(x[mine], device=device).long().split(rows) for x in (ids, targets))
        for some, wanted in zip(*split, strict=True):
            here = int((wanted != IGNORE_INDEX).sum())
            found = logits(some)
            total += float(loss(found, wanted)) * here
            right += int((found.argmax(-1) == wanted).sum())
            count += here
    total, correct, counted = ranks.total(total, right, count)
    return (total / counted, correct / counted) if counted else (math.nan, math.nan)


def need(source: Source, recipe: Recipe) -> None:
    """What an evaluation would trip over, told before the first step: all until then would be lost."""
    asked = recipe.evaluation
    if asked.prompt and asked.sample:
        try:
            source.tokenizer.encode(asked.prompt)
        except PellucidError as error:
            raise ConfigError(f"evaluation.prompt={asked.prompt!r} cannot be read: {error}") from None
    need_held_out(recipe, source.validation.targets)


def need_held_out(recipe: Recipe, targets: float) -> None:
    """Refuses to wait for a better validation loss where nothing is held out."""
    if recipe.train.patience and not targets:
        raise ConfigError(
            f"train.patience={recipe.train.patience} waits for a better loss on what was held out, and "
            f"data.validation={recipe.data.validation:g} holds nothing out: use data.validation=0.1, or "
            "train.patience=0."
        )


@torch.no_grad()
def sample(model: Transformer, source: Source, asked: EvaluationSettings) -> str:
    """A text of the model's own, the same dice at every evaluation; of a task, its answer to a problem."""
    config, tokenizer = model.config, source.tokenizer
    if not asked.sample or config.mask.bidirectional_prefix:
        return ""
    prompt = asked.prompt or source.prompt
    start = [source.begin] * (not asked.prompt) + tokenizer.encode(prompt)
    if source.opening:
        prompt, start = source.opening(asked.prompt)
    start = start[: config.context_length - 1] or [source.begin]
    written: list[int] = []
    for tokens in generate(model, [start], max_new_tokens=asked.sample, temperature=0.8, seed=0):
        if tokens[0] is None or tokens[0] == source.end:
            break
        written.append(tokens[0])
    return prompt + " " * bool(source.prompt) + tokenizer.decode(written)


def beginning(model: Transformer, source: Source, asked: EvaluationSettings) -> str:
    """What a text of the model can begin with: the prompt of its samples, or the first words that were held
    out. Nothing where there are none that could be typed and read, or where the model writes no text."""
    if model.config.mask.bidirectional_prefix:
        return ""
    text = asked.prompt or source.prompt
    if not text and source.opening:
        text = source.opening("")[0].removesuffix(" → ")
    elif not text and source.validation.rows:
        held_out = source.validation.row(0)[1]
        text = source.tokenizer.decode(
            [int(id) for id in held_out[:WORDS] if id not in (IGNORE_INDEX, source.end)]
        )
    text = next(iter(text.strip().splitlines()), "").strip()
    try:
        return text if text.isprintable() and text[:1] not in "-[" and source.tokenizer.encode(text) else ""
    except PellucidError:
        return ""

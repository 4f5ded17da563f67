"""How a model is judged on the way: its loss on the text that was held out, and a text of its own."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pellucid.generation.loop import generate
from pellucid.model.loss import IGNORED, loss
from pellucid.model.transformer import Transformer
from pellucid.training.recipe import Evaluation
from pellucid.training.source import Source


@torch.no_grad()
def mean_loss(
    logits: Callable[[Tensor], Tensor], source: Source, batches: int, device: torch.device
) -> float:
    """Each target counted once, without smoothing and z-loss; so many batches, all where that is 0."""
    total, count = 0.0, 0
    for i, (ids, targets) in enumerate(source.validation):
        if i >= (batches or math.inf):
            break
        some, wanted = (torch.as_tensor(x, device=device).long() for x in (ids, targets))
        here = int((wanted != IGNORED).sum())
        total += float(loss(logits(some), wanted)) * here
        count += here
    return total / count if count else math.nan


@torch.no_grad()
def sample(model: Transformer, source: Source, asked: Evaluation) -> str:
    """A text of the model's own, the same dice at every evaluation."""
    config, tokenizer = model.config, source.tokenizer
    if not asked.sample or config.mask.together:
        return ""
    before = asked.prompt
    start = tokenizer.encode(before) if before else [source.begin]
    if source.opening:
        before, start = source.opening(asked.prompt)
    start = start[: config.context_length - 1] or [source.begin]
    written: list[int] = []
    for tokens in generate(model, [start], max_new_tokens=asked.sample, temperature=0.8, seed=0):
        if tokens[0] is None or tokens[0] == source.end:
            break
        written.append(tokens[0])
    return before + tokenizer.decode(written)

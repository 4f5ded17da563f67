"""The loop that writes: read the prompt into the cache, then one token at a time.

for tokens in generate(model, [[1, 2, 3]], max_new_tokens=20):
    print(tokens[0])
"""

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from pellucid.arguments import check_bool, check_float, check_int
from pellucid.errors import TokenError, UsageError
from pellucid.generation.draw import draw
from pellucid.model.cache import Cache
from pellucid.model.transformer import Transformer

CHUNK = 512
"""Tokens of a prompt that are read at once: the memory of a long prompt's attention stays bounded."""


def generate(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    seed: int | Sequence[int] | None = None,
    stop: Collection[int] = (),
    cache_dtype: torch.dtype | None = None,
    past_context: bool = False,
) -> Iterator[list[int | None]]:
    """Yields one token for each prompt at each step, None for a prompt whose text has ended.

    A text ends with a token of `stop`, which is given out, or where the context is full. With `past_context`
    it goes on there: the last half of the context is read again from position 0, and the rest is forgotten.
    Each prompt draws from a generator of its own, from the seed or from its own of several, so its text does
    not depend on its neighbours.
    """
    max_new_tokens, temperature = check_request(max_new_tokens, temperature, seed, past_context)
    if not prompts or not all(prompts):
        raise TokenError("a prompt is empty; give at least one token.")
    if min(map(min, prompts)) < -(2**63) or max(map(max, prompts)) >= 2**63:  # no tensor holds them
        raise TokenError(f"ids go from 0 to {model.config.vocab_size - 1}; a prompt has one far beyond.")
    room = model.config.context_length
    if (longest := max(map(len, prompts))) > room and not past_context:
        raise TokenError(f"{longest} tokens do not fit this model's context of {room}; shorten the prompt.")
    _check_mask(model, min(map(len, prompts)))
    dice = _dice(seed, len(prompts))
    return _write(model, prompts, max_new_tokens, temperature, dice, stop, cache_dtype, past_context)


@torch.inference_mode()  # as a decorator: between two tokens the caller is in its own mode
def _write(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    temperature: float,
    dice: list[torch.Generator],
    stop: Collection[int],
    cache_dtype: torch.dtype | None,
    past_context: bool,
) -> Iterator[list[int | None]]:
    room = model.config.context_length
    half = max(room // 2, int(model.config.mask.bidirectional_prefix), 1)
    texts = [list(prompt) if len(prompt) <= room else list(prompt[-half:]) for prompt in prompts]
    going = [past_context or len(text) < room for text in texts]
    if not max_new_tokens or not any(going):
        return
    capacity = min(max(map(len, texts)) + max_new_tokens, room)
    cache = Cache(model.config, len(texts), capacity, dtype=cache_dtype or model.dtype, device=model.device)
    scores = prefill(model, texts, cache)
    for step in range(max_new_tokens):
        tokens: list[int | None] = [
            draw(scores[row, 0], temperature, dice[row]) if going[row] else None for row in range(len(texts))
        ]
        yield tokens
        for row, token in enumerate(tokens):
            texts[row] += [] if token is None else [token]
            going[row] = token is not None and token not in stop and (past_context or len(texts[row]) < room)
        if not any(going) or step == max_new_tokens - 1:
            return
        if any(on and len(text) > room for text, on in zip(texts, going, strict=True)):
            texts = [
                text[-half:] if len(text) > room or not on else text
                for text, on in zip(texts, going, strict=True)
            ]
            cache.crop(0)
            scores = prefill(model, texts, cache)
            continue
        if not all(going):  # rows that have ended give their room back, again at every step
            cache.crop([len(text) if on else 0 for text, on in zip(texts, going, strict=True)])
        ids = torch.tensor([[token or 0] for token in tokens], device=model.device)
        scores = model.forward_cached(ids, cache)


def check_request(max_new_tokens: Any, temperature: Any, seed: Any, past_context: Any) -> tuple[int, float]:
    """Returns how many tokens at what temperature; refuses what no model can be asked for."""
    check_bool("past_context", past_context)
    for one in seed if isinstance(seed, Sequence) and not isinstance(seed, str | bytes) else [seed]:
        if one is not None:
            check_int("seed", one)
    return check_int("max_new_tokens", max_new_tokens, least=0), check_float("temperature", temperature, 0)


def finish_reason(ids: Sequence[int], max_new_tokens: int, stop: Collection[int]) -> str:
    """Returns why a text of these new ids ended: "stop", a token that ends texts; "length", as many as were
    asked for; "context", the context was full before.

    >>> finish_reason([7, 2], 5, stop={2})
    'stop'
    """
    if ids and ids[-1] in stop:
        return "stop"
    return "length" if len(ids) >= max_new_tokens else "context"


def prefill(model: Transformer, prompts: Sequence[Sequence[int]], cache: Cache, chunk: int = CHUNK) -> Tensor:
    """Read the prompts into the cache, some at a time; the scores [B 1 V] after each prompt's last token."""
    longest = max(map(len, prompts))
    chunk = max(chunk, int(cache.bidirectional_prefix))
    scores: list[Tensor | None] = [None] * len(prompts)
    for start in range(0, longest, chunk):
        parts = [list(prompt[start : start + chunk]) for prompt in prompts]
        width = max(map(len, parts))
        ids = torch.tensor([part + [0] * (width - len(part)) for part in parts], device=model.device)
        model.check_ids(ids)
        counts = [len(part) for part in parts]
        found = model.forward_cached(ids, cache, None if len(set(counts)) == 1 else counts, last_only=True)
        for row, count in enumerate(counts):
            scores[row] = found[row] if count else scores[row]
    return torch.stack([score for score in scores if score is not None])


def _check_mask(model: Transformer, shortest: int) -> None:
    """A text grows at its end, so what is read must not change with what is written after it."""
    mask = model.config.mask
    if mask.bidirectional_prefix == math.inf:
        raise UsageError(
            f"with the mask {mask.kind!r} a token changes what came before it: such a model scores texts, it "
            "does not write them."
        )
    if shortest < mask.bidirectional_prefix:
        raise TokenError(
            f"the mask is bidirectional over the first {mask.bidirectional_prefix} tokens, and a prompt has "
            f"{shortest}: give at least {mask.bidirectional_prefix} tokens."
        )


def _dice(seed: int | Sequence[int] | None, count: int) -> list[torch.Generator]:
    seeds = list(seed) if isinstance(seed, Sequence) else [seed] * count
    if len(seeds) != count:
        raise UsageError(f"{len(seeds)} seeds for {count} prompts; give one for all, or one for each.")
    dice = [torch.Generator() for _ in seeds]
    for each, one in zip(dice, seeds, strict=True):
        if one is None:
            each.seed()
        else:
            each.manual_seed(int(one))
    return dice

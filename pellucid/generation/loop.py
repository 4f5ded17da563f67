"""The generation loop: prefill of the prompt, then one decode step per token.

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
"""Tokens of a prompt per prefill call: it bounds the memory of a long prompt's attention."""


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

    A text ends with a token of `stop`, which is yielded, or where the context is full. With `past_context` it
    continues: the last half of the context is prefilled again from position 0, and the rest is dropped. Each
    prompt has its own generator, from the seed or from one of several, so its text does not depend on the
    other rows of the batch.
    """
    max_new_tokens, temperature = check_request(max_new_tokens, temperature, seed, past_context)
    if not prompts or not all(prompts):
        raise TokenError("a prompt is empty; give at least one token.")
    if min(map(min, prompts)) < -(2**63) or max(map(max, prompts)) >= 2**63:  # beyond int64
        raise TokenError(f"ids go from 0 to {model.config.vocab_size - 1}; a prompt has one far outside.")
    room = model.config.context_length
    if (longest := max(map(len, prompts))) > room and not past_context:
        raise TokenError(f"{longest} tokens do not fit this model's context of {room}; shorten the prompt.")
    _check_mask(model, min(map(len, prompts)))
    generators = _make_generators(seed, len(prompts))
    return _generate(model, prompts, max_new_tokens, temperature, generators, stop, cache_dtype, past_context)


@torch.inference_mode()  # as a decorator: between two tokens the caller is in its own mode
def _generate(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    temperature: float,
    generators: list[torch.Generator],
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
    logits = prefill(model, texts, cache)
    for step in range(max_new_tokens):
        tokens: list[int | None] = [
            draw(logits[row, 0], temperature, generators[row]) if going[row] else None
            for row in range(len(texts))
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
            logits = prefill(model, texts, cache)
            continue
        if not all(going):  # rows that have ended free their slots at every step
            cache.crop([len(text) if on else 0 for text, on in zip(texts, going, strict=True)])
        ids = torch.tensor([[token or 0] for token in tokens], device=model.device)
        logits = model.forward_cached(ids, cache)


def check_request(max_new_tokens: Any, temperature: Any, seed: Any, past_context: Any) -> tuple[int, float]:
    """Returns the number of tokens and the temperature; raises where an argument is not valid."""
    check_bool("past_context", past_context)
    for one in seed if isinstance(seed, Sequence) and not isinstance(seed, str | bytes) else [seed]:
        if one is not None:
            check_int("seed", one)
    return check_int("max_new_tokens", max_new_tokens, least=0), check_float("temperature", temperature, 0)


def finish_reason(ids: Sequence[int], max_new_tokens: int, stop: Collection[int]) -> str:
    """Returns why generation ended: "stop", a stop token; "length", `max_new_tokens` were generated;
    "context", the context is full.

    >>> finish_reason([7, 2], 5, stop={2})
    'stop'
    """
    if ids and ids[-1] in stop:
        return "stop"
    return "length" if len(ids) >= max_new_tokens else "context"


def prefill(model: Transformer, prompts: Sequence[Sequence[int]], cache: Cache, chunk: int = CHUNK) -> Tensor:
    """Prefills the cache in chunks; returns the logits [B 1 V] after each prompt's last token."""
    longest = max(map(len, prompts))
    chunk = max(chunk, int(cache.bidirectional_prefix))
    logits: list[Tensor | None] = [None] * len(prompts)
    for start in range(0, longest, chunk):
        parts = [list(prompt[start : start + chunk]) for prompt in prompts]
        width = max(map(len, parts))
        ids = torch.tensor([part + [0] * (width - len(part)) for part in parts], device=model.device)
        model.check_ids(ids)
        counts = [len(part) for part in parts]
        found = model.forward_cached(ids, cache, None if len(set(counts)) == 1 else counts, last_only=True)
        for row, count in enumerate(counts):
            logits[row] = found[row] if count else logits[row]
    return torch.stack([score for score in logits if score is not None])


def _check_mask(model: Transformer, shortest: int) -> None:
    """Raises unless earlier positions do not depend on later tokens, as a cache requires."""
    mask = model.config.mask
    if mask.bidirectional_prefix == math.inf:
        raise UsageError(
            f"with the mask {mask.kind!r} earlier positions depend on later tokens: such a model can score "
            "texts, not generate them."
        )
    if shortest < mask.bidirectional_prefix:
        raise TokenError(
            f"the mask is bidirectional over the first {mask.bidirectional_prefix} tokens, and a prompt has "
            f"{shortest}: give at least {mask.bidirectional_prefix} tokens."
        )


def _make_generators(seed: int | Sequence[int] | None, count: int) -> list[torch.Generator]:
    seeds = list(seed) if isinstance(seed, Sequence) else [seed] * count
    if len(seeds) != count:
        raise UsageError(f"{len(seeds)} seeds for {count} prompts; give one for all, or one for each.")
    generators = [torch.Generator() for _ in seeds]
    for generator, one in zip(generators, seeds, strict=True):
        if one is None:
            generator.seed()
        else:
            generator.manual_seed(int(one))
    return generators

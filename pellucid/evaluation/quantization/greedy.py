"""The first token at which the greedy text of a quantized model departs from that of its reference.

Up to that token both have the same text before them. So one greedy text, of the reference, is enough: each
model reads it once, and the texts depart at the first place where their most likely tokens differ.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch

from pellucid.engine.transformer import Transformer
from pellucid.generation.request import Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling

NEW_TOKENS = 64
SLOTS = 8


@dataclass(frozen=True)
class GreedyText:
    """A greedy continuation of some tokens of a document."""

    document: str
    prompt: str
    n_tokens: int
    """Tokens of the continuation."""
    departs_at: int | None
    """The first token, from 0, that the quantized model has another one for; None where there is none."""
    reference_token: str | None
    """What the reference has there."""
    token: str | None


def find_departures(
    reference: Transformer,
    other: Transformer,
    prompts: Sequence[tuple[str, Sequence[int]]],
    show: Callable[[int], str],
    stop_ids: Collection[int] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[GreedyText, ...]:
    """Returns the greedy text of each prompt, given with its document's name, that has room for one token."""
    context = reference.config.context_length
    kept = [(name, list(ids)) for name, ids in prompts if len(ids) < context]
    if not kept:
        return ()
    requests = [
        Request(tuple(ids), Sampling(max_new_tokens=min(NEW_TOKENS, context - len(ids)))) for _, ids in kept
    ]
    capacity = max(len(one.prompt) + NEW_TOKENS for one in requests)
    engine = Engine(
        reference, stop_ids=stop_ids, slots=min(SLOTS, len(requests)), capacity=min(capacity, context)
    )
    handles = [engine.add(request, streams=False) for request in requests]
    found = list[GreedyText]()
    for (name, prompt), handle in zip(kept, handles, strict=True):
        progress(NEW_TOKENS * len(found), NEW_TOKENS * len(kept))
        continuation = list(handle.result()[0].ids)
        ids = torch.tensor([prompt + continuation[:-1]], device=reference.device)
        ours, theirs = (_most_likely(module, ids)[len(prompt) - 1 :] for module in (reference, other))
        departs = next(
            (i for i, pair in enumerate(zip(ours, theirs, strict=True)) if len(set(pair)) > 1), None
        )
        found.append(
            GreedyText(
                name,
                "".join(map(show, prompt)),
                len(continuation),
                departs,
                None if departs is None else show(ours[departs]),
                None if departs is None else show(theirs[departs]),
            )
        )
    return tuple(found)


@torch.no_grad()
def _most_likely(module: Transformer, ids: torch.Tensor) -> list[int]:
    """Returns the most likely next token after each of the ids [1 T]."""
    tokens: list[int] = module(ids)[0].argmax(-1).tolist()
    return tokens

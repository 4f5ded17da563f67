"""Requests through one engine: its size, the completions of each in order, and one request token by token."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pellucid.base.dtypes import dtype_name
from pellucid.generation.settings.keywords import GenerationCall

if TYPE_CHECKING:  # torch is imported when the fast engine is first asked for
    from pellucid.generation.handle import Handle
    from pellucid.generation.ledger.ledger import Ledger
    from pellucid.generation.request import Completion, Request
    from pellucid.generation.scheduler import Engine
    from pellucid.model import Model

SLOTS = 8
"""Texts that are generated at once, at most."""


def make_engine(model: "Model", requests: "Sequence[Request]", options: Mapping[str, Any]) -> "Engine":
    """Returns an engine whose slots hold the longest of the requests, and at most `SLOTS` of them at once.

    It raises where one does not fit the context, before a weight is read.
    """
    capacity = max(check_request(model, one) for one in requests)
    rows = [max(one.sampling.n, one.sampling.beams) for one in requests]
    from pellucid.generation.decoders import make_decoder
    from pellucid.generation.scheduler import Engine

    decoder, given = make_decoder(model), dict(options)
    if "draft" in given:
        given["draft"] = make_decoder(given["draft"])
    return Engine(
        decoder,
        model.pretrained.tokenizer,
        stop_ids=model.eos_ids,
        slots=max(min(sum(rows), SLOTS), *rows),
        capacity=capacity,
        **given,
    )


def check_request(model: "Model", request: "Request") -> int:
    """Returns how many tokens a slot must hold: the prompt and what follows, or the whole context where a
    text goes on beyond it. It raises where the model cannot run the request."""
    from pellucid.generation.context import check_fits

    request.sampling.check_vocabulary(model.config.vocab_size)
    context, prefix = model.config.context_length, model.config.mask.bidirectional_prefix
    new = check_fits(len(request.prompt), request.sampling, context, prefix)
    return len(request.prompt) + new if request.sampling.context == "refuse" else context


def make_ledgers(
    model: "Model",
    call: GenerationCall,
    requests: "Sequence[Request]",
    done: "Sequence[list[Completion]]",
) -> "list[Ledger]":
    """Returns the ledger of each request, which had `ledger=True`."""
    from pellucid.generation.ledger.make import make_ledger

    cache, draft = call.engine.get("cache_dtype"), call.engine.get("draft")
    return [
        make_ledger(
            model,
            request,
            completions,
            sources=call.origins,
            cache_dtype=None if cache is None else dtype_name(cache),
            draft=None if draft is None else draft.short_name,
        )
        for request, completions in zip(requests, done, strict=True)
    ]


def complete(
    engine: "Engine", requests: "Sequence[Request]", waiting: int = 64
) -> "Iterator[list[Completion]]":
    """Yields the completions of each request, in the order of the requests; at most `waiting` are in the
    engine at a time. All are cancelled where the caller leaves."""
    handles: deque[Handle] = deque()
    try:
        for request in requests:
            handles.append(engine.add(request, streams=False))
            if len(handles) >= waiting:
                yield handles.popleft().result()
        while handles:
            yield handles.popleft().result()
    finally:
        for handle in handles:
            handle.cancel()

"""The generation methods of `Model`, and requests through one engine: its size, and the completions of each.

The methods are thin callers of the engine, which is made for one call.

Each takes a prompt, `max_new_tokens`, `temperature`, `seed`, and the keywords of `GenerationOptions`.
"""

import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from pellucid.base.arguments import check_bool, check_text
from pellucid.base.dtypes import dtype_name
from pellucid.base.errors import UsageError
from pellucid.generation.context import check_room
from pellucid.generation.settings.keywords import GenerationCall, GenerationOptions, read_options, split_seeds
from pellucid.model import Model, to_model
from pellucid.text.prompts import Prompt, encode_start, split_prompts

if TYPE_CHECKING:  # torch is imported when the fast engine is first asked for
    from pellucid.generation.handle import Handle
    from pellucid.generation.ledger.ledger import Ledger
    from pellucid.generation.request import Completion, Request, Token
    from pellucid.generation.scheduler import Engine

SLOTS = 8
"""Texts that are generated at once, at most."""
Same = TypeVar("Same", str, list[int], list[str], list[list[int]])
"""What follows a prompt has the prompt's type."""
Piece = TypeVar("Piece", str, int)


@overload
def generate(
    model: "Model | str | os.PathLike[str]",
    /,
    prompt: Same,
    max_new_tokens: int | None = None,
    temperature: float | None = None,
    seed: int | Sequence[int] | None = None,
    *,
    n: Literal[1] | None = None,
    return_ledger: Literal[False] = False,
    **options: Unpack[GenerationOptions],
) -> Same: ...


@overload
def generate(
    model: "Model | str | os.PathLike[str]",
    /,
    prompt: Any,
    max_new_tokens: int | None = None,
    temperature: float | None = None,
    seed: int | Sequence[int] | None = None,
    *,
    n: int | None = None,
    return_ledger: bool = False,
    **options: Unpack[GenerationOptions],
) -> Any: ...


def generate(
    model: "Model | str | os.PathLike[str]",
    /,
    prompt: Any,
    max_new_tokens: int | None = None,
    temperature: float | None = None,
    seed: int | Sequence[int] | None = None,
    *,
    n: int | None = None,
    return_ledger: bool = False,
    **options: Unpack[GenerationOptions],
) -> Any:
    """Returns what follows a text, as text, or a list of ids, as ids; of several prompts, a list.

    A prompt and a seed are one text, whatever stands beside them; several prompts may have a seed each. With
    `n` more than 1 there is a list of texts for each prompt; with `return_ledger` the result is a pair, of
    which the second is the ledger of how each token was chosen, or a list of them.

    >>> import pellucid
    >>> pellucid.generate("abcd", "A B", max_new_tokens=2)
    ' B B'
    """
    model = to_model(model)
    given = {"max_new_tokens": max_new_tokens, "temperature": temperature, "n": n, **options}
    call = read_options(model, given)
    check_room(model, prompt, call.sampling)
    prompts, single = split_prompts(prompt)
    starts = [encode_start(model, each, call.parse_special) for each in prompts]
    as_text = [isinstance(each, str) for each in prompts]
    return complete_prompts(model, starts, call, as_text, seed, return_ledger, single=single)


def complete_prompts(
    model: "Model",
    starts: Sequence[Sequence[int]],
    call: GenerationCall,
    as_text: Sequence[bool],
    seed: Any = None,
    return_ledger: bool = False,
    *,
    single: bool = False,
) -> Any:
    """Returns what `generate` does, of prompts that are ids: `as_text` says of which the result is text."""
    from pellucid.generation.request import Request

    check_bool("return_ledger", return_ledger)
    settings = split_seeds(call.sampling, seed, len(starts))
    requests = [
        Request(tuple(ids), sampling, ledger=return_ledger)
        for ids, sampling in zip(starts, settings, strict=True)
    ]
    done = list(complete(make_engine(model, requests, call.engine), requests))
    found = [_read_result(one, is_text, call.sampling.n) for one, is_text in zip(done, as_text, strict=True)]
    if not return_ledger:
        return found[0] if single else found
    ledgers = make_ledgers(model, call, requests, done)
    return (found[0], ledgers[0]) if single else (found, ledgers)


def _read_result(completions: "list[Completion]", as_text: bool, n: int) -> Any:
    """Returns the text or the ids of each choice; where one was asked for, not in a list."""
    found = [one.text if as_text else list(one.ids) for one in completions]
    return found[0] if n == 1 else found


def stream(
    model: "Model",
    /,
    prompt: str,
    max_new_tokens: int | None = None,
    temperature: float | None = None,
    seed: int | None = None,
    **options: Unpack[GenerationOptions],
) -> Iterator[str]:
    """Yields what follows a text, piece by piece as it is generated; never half a character.

    Generation ends where the caller leaves the loop.
    """
    check_text("prompt", prompt)
    handle = start(model, prompt, max_new_tokens, temperature, seed, **options)
    return _read(handle, attrgetter("text"))


def generate_ids(
    model: "Model",
    /,
    prompt: Prompt,
    max_new_tokens: int | None = None,
    temperature: float | None = None,
    seed: int | None = None,
    **options: Unpack[GenerationOptions],
) -> Iterator[int]:
    """Yields the ids that follow a prompt, one by one; the last may be a token that ends the text."""
    handle = start(model, prompt, max_new_tokens, temperature, seed, **options)
    return _read(handle, attrgetter("id"))


def astream(
    model: "Model",
    /,
    prompt: str,
    max_new_tokens: int | None = None,
    temperature: float | None = None,
    seed: int | None = None,
    **options: Unpack[GenerationOptions],
) -> AsyncIterator[str]:
    """Yields the pieces of `stream` to `async for`; each is computed in another thread.

    Generation ends where the caller leaves the loop or is cancelled.
    """
    check_text("prompt", prompt)
    handle = start(model, prompt, max_new_tokens, temperature, seed, **options)
    return _in_thread(handle)


def start(
    model: "Model",
    prompt: Prompt,
    max_new_tokens: int | None = None,
    temperature: float | None = None,
    seed: int | None = None,
    **options: Unpack[GenerationOptions],
) -> "Handle":
    """Returns the handle of one request for one text, which yields its tokens."""
    from pellucid.generation.request import Request

    positional = {"max_new_tokens": max_new_tokens, "temperature": temperature, "seed": seed}
    call = read_options(model, {**positional, **options})
    if call.sampling.n > 1:
        raise UsageError(f"one text is streamed, and n={call.sampling.n}: use generate, or omit n.")
    check_room(model, prompt, call.sampling)
    request = Request(tuple(encode_start(model, prompt, call.parse_special)), call.sampling)
    return make_engine(model, [request], call.engine).add(request)


def _read(handle: "Handle", read: "Callable[[Token], Piece]") -> "Iterator[Piece]":
    """Yields what is read of each token; the request ends where the caller leaves."""
    try:
        yield from map(read, handle)
    finally:
        handle.cancel()


async def _in_thread(handle: "Handle") -> AsyncIterator[str]:
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    loop, tokens = asyncio.get_running_loop(), iter(handle)
    worker = ThreadPoolExecutor(1)  # one thread for all tokens: each new one would start threads of its own
    try:
        while (token := await loop.run_in_executor(worker, next, tokens, None)) is not None:
            yield token.text
    finally:
        handle.cancel()
        worker.shutdown(wait=False)


# ---- requests through one engine


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
    from pellucid.generation.ledger.ledger import make_ledger

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

"""`POST /v1/embeddings`: the mean of the final hidden states of each input, normalized to length 1."""

import asyncio
import base64
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pellucid.server.http.app import make_answer
from pellucid.server.http.request import run_while_connected
from pellucid.server.openai.answers.plan import find_place
from pellucid.server.openai.served_model import ServedModel
from pellucid.server.openai.worker.client import EngineClient

MOST_CONCURRENT = 8
"""Inputs of one request that are in the engine at a time."""


async def embed(served: ServedModel, request: Request) -> Response:
    """Answers with a vector for each input, in their order."""
    values = await served.read_values(request, "embeddings")
    return make_answer(await run_while_connected(request.receive, write_embeddings(served, values)))


async def write_embeddings(served: ServedModel, values: Mapping[str, Any]) -> bytes:
    """Returns the answer in JSON. Each vector is written when it comes, since many take long to write."""
    given, write = values["input"], FORMATS[values["encoding_format"]]
    prompts = list[tuple[int, ...]]()
    for place, one in enumerate(given):
        param = find_place("input", place, len(given))
        if isinstance(one, str):
            prompts.append(await served.encoder.encode(one, param))
        else:
            prompts.append(served.encoder.check_ids(one, param))
    vectors = await embed_all(served.engine, prompts, write)
    count = sum(map(len, prompts))
    served.metrics.prompt_tokens.inc(count)
    rest = {
        "object": "list",
        "model": served.name,
        "usage": {"prompt_tokens": count, "total_tokens": count},
    }
    rows = [
        b'{"object": "embedding", "index": %d, "embedding": %b}' % (place, vector)
        for place, vector in enumerate(vectors)
    ]
    return json.dumps(rest).encode()[:-1] + b', "data": [' + b", ".join(rows) + b"]}"


async def embed_all(
    engine: EngineClient, prompts: Sequence[tuple[int, ...]], write: Callable[[Sequence[float]], bytes]
) -> list[bytes]:
    """Returns the vector of each prompt as `write` gives it; the first error ends all of them."""
    found, places = [b""] * len(prompts), iter(enumerate(prompts))

    async def work() -> None:
        for place, prompt in places:
            found[place] = write(await engine.embed(prompt))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(MOST_CONCURRENT, engine.load.most_requests or 1, len(prompts))):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return found


def write_numbers(vector: Sequence[float]) -> bytes:
    """
    >>> write_numbers([0.5, -1.0])
    b'[0.5, -1.0]'
    """
    return json.dumps(list(vector), allow_nan=False).encode()


def write_base64(vector: Sequence[float]) -> bytes:
    """Returns float32 in little-endian order, as base64.

    >>> write_base64([0.5, -1.0])
    b'"AAAAPwAAgL8="'
    """
    return b'"' + base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)) + b'"'


FORMATS: Mapping[str, Callable[[Sequence[float]], bytes]] = {"float": write_numbers, "base64": write_base64}

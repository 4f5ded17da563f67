"""Serving a model: HTTP in this process, the engine in another, until a signal ends both."""

import asyncio
import gc
import json
import re
import shlex
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pellucid.base.dtypes import CACHE_NAMES, check_dtype
from pellucid.base.errors import PellucidError, UsageError, show
from pellucid.base.formatting import format_bytes, pluralize
from pellucid.formats.pretrained import Pretrained
from pellucid.formats.quantizing import check_weights, with_weights
from pellucid.formats.resolve import open_model
from pellucid.generation.answers.lines import EngineOptions, EngineReady
from pellucid.server.http.address import (
    bind,
    check_exposure,
    get_port,
    list_own_hosts,
    raise_file_limit,
    resolve_address,
)
from pellucid.server.http.app import Shell, ShellRoute, make_ending_error
from pellucid.server.http.key_file import VARIABLE
from pellucid.server.http.limits import Access, Scope, make_serve_access
from pellucid.server.http.listen import DrainingServer
from pellucid.server.openai.answers.explorer import answer_about_model, open_page, send_page
from pellucid.server.openai.endpoints.about import list_models, show_health, show_metrics, show_model
from pellucid.server.openai.endpoints.chat import plan_chat
from pellucid.server.openai.endpoints.completions import generate_answer, plan_completions
from pellucid.server.openai.endpoints.embeddings import embed
from pellucid.server.openai.endpoints.tokenizing import detokenize, show_tokenizer, tokenize
from pellucid.server.openai.served_model import ServedModel
from pellucid.server.openai.worker.client import EngineClient

DRAIN_SECONDS = 30
"""How long running answers may take after the signal that ends the server."""

Say = Callable[[str], None]


def serve(
    model: str,
    *,
    host: str,
    port: int,
    key: str | None,
    key_file: Path | None = None,
    name: str,
    allow_hosts: Iterable[str],
    slots: int | None,
    queue: int,
    dtype: str,
    device: str,
    cache: str | None,
    weights: str | None = None,
    say: Say,
) -> int | None:
    """Serves a model until a signal ends it; returns that signal.

    `key_file` is where the key was read, for the example that is printed; `say` prints a line.
    """
    check_engine_names(device, dtype, cache)
    check_weights(weights)
    address = resolve_address(host)
    check_exposure(address, key)
    raise_file_limit()
    with bind(port, address) as listening:
        access = make_serve_access(get_port(listening), address, key, allow_hosts)
        # "auto" is decided by the engine: the process that listens does not import torch
        named = None if weights == "auto" else weights
        pretrained = replace(with_weights(open_model(model), named), name=name)  # clients know that name
        url = make_url(address, access.port)
        # the very folder: of a run that goes on, the newest model may be another when the engine opens it
        path = str(pretrained.provenance.path)
        engine = EngineClient(EngineOptions(path, slots, queue, dtype, device, cache, weights))
        served = ServedModel(name, pretrained, engine, model, named)
        give_up = partial(engine.fail_all, make_ending_error)
        server = DrainingServer(ServeApp(served, access), DRAIN_SECONDS, give_up, say)

        def say_ready(ready: EngineReady) -> None:
            room = f"{pluralize(ready.slots, 'slot')} of {ready.capacity:,} tokens"
            if ready.capacity < (context := pretrained.config.context_length):
                served.limit_context(ready.capacity)
                room += f" (the model declares {context:,}, for which there is no memory)"
            size = format_bytes(ready.cache_bytes)
            say(f"{url}/v1 serves {name} with {room}; the cache takes up to {size}.")
            say(make_curl_line(url, pretrained, key is not None, key_file))
            if not list_own_hosts(address) and not access.allowed_hosts:
                say("Other machines are refused until --allow-host gives the name by which they ask.")
            say("Ctrl-C ends the server.")

        gc.freeze()  # what stays is not looked at again: collections are short, and often enough
        say(f"{name} is loading; {url}/health says when it is ready.")
        return asyncio.run(run_until_signal(listening, server, served, engine, say_ready))


def check_engine_names(device: str, dtype: str, cache: str | None) -> None:
    """Raises where a name is of no device or dtype at all; whether they can be used is for the engine to say,
    which imports torch."""
    check_dtype(dtype)
    if cache is not None:
        check_dtype(cache, CACHE_NAMES, "cache")
    if not re.fullmatch(r"[a-z]+(:\d{1,3})?", device):
        raise UsageError(f"device must be a name such as cpu, cuda or cuda:1, not {show(device)}.")


async def run_until_signal(
    listening: socket.socket,
    server: DrainingServer,
    served: ServedModel,
    engine: EngineClient,
    say_ready: Callable[[EngineReady], None],
) -> int | None:
    """Serves until a signal comes and running answers are given, and returns it; raises where the model does
    not load, or the engine is given up. Requests are answered while it loads: `/health` says so, and others
    are refused."""

    async def run_engine() -> None:
        try:
            say_ready(await engine.start())
            await engine.run_until_given_up()
        except BaseException:
            server.end()
            raise

    running = asyncio.create_task(run_engine())
    try:
        await server.serve([listening])
        if running.done():
            running.result()
        return server.ended_by
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await asyncio.gather(engine.close(), served.close())


def make_url(address: str, port: int) -> str:
    """Returns where a server can be asked from this machine.

    >>> make_url("127.0.0.1", 8000), make_url("::1", 8000), make_url("0.0.0.0", 80)
    ('http://127.0.0.1:8000', 'http://[::1]:8000', 'http://127.0.0.1:80')
    """
    every = "[::1]" if ":" in address else "127.0.0.1"
    return f"http://{(list_own_hosts(address) or [every])[0]}:{port}"


QUESTION, BEGINNING = "Who are you?", "Once upon a time"
MAX_TOKENS = 40


def make_curl_line(url: str, pretrained: Pretrained, has_key: bool, key_file: Path | None = None) -> str:
    """Returns a line that asks the model something that it can read.

    The key itself is not in it: the shell reads it from its file, or from the environment."""
    path, body = choose_request(pretrained)
    parts = ["curl", shlex.quote(f"{url}/v1/{path}"), "-H 'Content-Type: application/json'"]
    if has_key:
        key = f"${VARIABLE}" if key_file is None else f"$(cat {shlex.quote(str(key_file))})"
        parts.append(f'-H "Authorization: Bearer {key}"')
    return " ".join([*parts, "-d", shlex.quote(json.dumps(body))])


def choose_request(pretrained: Pretrained) -> tuple[str, dict[str, Any]]:
    """Returns a path and a body: a question where the model has a chat template, else a text's beginning, or
    one token where the tokenizer cannot read that."""
    room = {"max_tokens": min(MAX_TOKENS, pretrained.config.context_length // 2)}
    if not can_read(pretrained, BEGINNING + QUESTION):
        return "completions", {"prompt": [pretrained.start_id or 0], **room}
    if pretrained.chat_template is None:
        return "completions", {"prompt": BEGINNING, **room}
    return "chat/completions", {"messages": [{"role": "user", "content": QUESTION}], **room}


def can_read(pretrained: Pretrained, text: str) -> bool:
    """Returns whether the model has a tokenizer that has all of a text's characters or words."""
    try:
        return pretrained.tokenizer is not None and bool(pretrained.tokenizer.encode(text))
    except PellucidError:
        return False


Endpoint = Callable[[ServedModel, Request], Awaitable[Response]]

ENDPOINTS: Mapping[tuple[str, str], Endpoint] = {
    ("GET", "/health"): show_health,
    ("GET", "/metrics"): show_metrics,
    ("GET", "/explore"): open_page,
    ("GET", "/explore/"): send_page,
    ("GET", "/explore/{name}"): send_page,
    ("GET", "/api/{question}"): answer_about_model,
    ("POST", "/api/{question}"): answer_about_model,
    ("POST", "/v1/completions"): partial(generate_answer, "completions", plan_completions),
    ("POST", "/v1/chat/completions"): partial(generate_answer, "chat", plan_chat),
    ("POST", "/v1/embeddings"): embed,
    ("GET", "/v1/models"): list_models,
    ("GET", "/v1/models/{name:path}"): show_model,
    ("POST", "/tokenize"): tokenize,
    ("POST", "/detokenize"): detokenize,
    ("GET", "/tokenizer_info"): show_tokenizer,
}
"""Endpoints: the function that answers each route, by its method and path."""
PUBLIC_PATHS = frozenset({"/health", "/explore", "/explore/", "/explore/{name}"})
"""The routes that ask for no key: the files of the page hold no number."""


class ServeApp(Shell):
    """The endpoints of one model."""

    def __init__(self, served: ServedModel, access: Access) -> None:
        self.served = served
        methods: dict[tuple[str, Endpoint], list[str]] = {}
        for (method, path), endpoint in ENDPOINTS.items():
            methods.setdefault((path, endpoint), []).append(method)
        routes = [self._make_route(*place, found) for place, found in methods.items()]
        super().__init__(routes, access)
        self._paths = frozenset(route.path for route in routes)

    def _make_route(self, path: str, endpoint: Endpoint, methods: list[str]) -> ShellRoute:
        answer: Callable[..., Any] = partial(endpoint, self.served)
        return ShellRoute(path, answer, methods, is_public=path in PUBLIC_PATHS)

    def record_answer(self, scope: Scope, status: int | None) -> None:
        self.served.metrics.count_request(scope["path"], status, self._paths)

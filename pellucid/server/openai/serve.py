"""Serving a model: HTTP in this process, the engine in another, until a signal ends both."""

import asyncio
import gc
import re
import socket
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.base.dtypes import CACHE_NAMES, check_dtype
from pellucid.base.errors import UsageError, show
from pellucid.base.formatting import format_bytes, pluralize
from pellucid.formats.quantizing import check_weights, with_weights
from pellucid.server.extra import check_extra
from pellucid.server.http.bind import bind, get_port, raise_file_limit
from pellucid.server.http.hosts import check_exposure, list_own_hosts, resolve_address

if TYPE_CHECKING:  # they need the packages of the extra
    from pellucid.generation.answers.lines import EngineReady
    from pellucid.server.http.listen import DrainingServer
    from pellucid.server.openai.served_model import ServedModel
    from pellucid.server.openai.worker.client import EngineClient

PACKAGES = ("starlette", "uvicorn", "prometheus_client")
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
    check_extra(PACKAGES)
    check_engine_names(device, dtype, cache)
    check_weights(weights)
    address = resolve_address(host)
    check_exposure(address, key)
    raise_file_limit()
    with bind(port, address) as listening:
        from pellucid.formats.resolve import open_model
        from pellucid.generation.answers.lines import EngineOptions
        from pellucid.server.http.app import make_ending_error
        from pellucid.server.http.limits import make_serve_access
        from pellucid.server.http.listen import DrainingServer
        from pellucid.server.openai.app import ServeApp
        from pellucid.server.openai.curl_line import make_curl_line
        from pellucid.server.openai.served_model import ServedModel
        from pellucid.server.openai.worker.client import EngineClient

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

        def say_ready(ready: "EngineReady") -> None:
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
    server: "DrainingServer",
    served: "ServedModel",
    engine: "EngineClient",
    say_ready: Callable[["EngineReady"], None],
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

"""Serving the explorer: a session in a process of its own, the HTTP server before it, and a browser."""

import asyncio
import json
import os
import secrets
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Coroutine, Mapping
from pathlib import PurePath
from typing import Any

from pellucid.base.errors import ResourceError, UsageError
from pellucid.server import check_extra
from pellucid.server.explorer.bundle import read_page_files
from pellucid.server.explorer.client import ExplorerWorker
from pellucid.server.http.address import bind, get_port

DRAIN_SECONDS = 0
"""How long a last answer may take after the signal, beyond the second in which the server ends: a run, which
may take an hour, is not waited for."""
POLL_SECONDS = 0.02

Say = Callable[[str], None]


def explore(
    source: str,
    run: Mapping[str, Any] | None = None,
    *,
    weights: str | None = None,
    port: int = 0,
    opens_browser: bool,
    say: Say,
) -> int | None:
    """Serves the explorer of a model, a run or a trace until a signal ends it; returns that signal.

    `run` has the parameters of the question `run`, which is asked at once; `weights` says how the model's
    matrices are held, and `say` prints a line.
    """
    check_extra(
        ("starlette", "uvicorn"),
        "Without it, `pellucid explore … --export FILE` writes the page as one file.",
    )
    with bind(port) as listening:
        return asyncio.run(end_by_signal(_explore(listening, source, weights, run, opens_browser, say)))


async def end_by_signal(serving: Coroutine[Any, Any, int | None]) -> int | None:
    """Returns what a coroutine returns, or the signal that ended it before it served; its worker is ended in
    both cases. Ctrl-C cancels it by asyncio's own means."""
    task, signals = asyncio.create_task(serving), list[int]()

    def end(number: int) -> None:
        signals.append(number)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, end, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not signals:
            raise
        return signals[0]


async def _explore(
    listening: socket.socket,
    source: str,
    weights: str | None,
    run: Mapping[str, Any] | None,
    opens_browser: bool,
    say: Say,
) -> int | None:
    opening = asyncio.create_task(ExplorerWorker.start(source, weights=weights))
    await asyncio.sleep(0)  # the process starts here, and opens the source while uvicorn is imported
    from pellucid.server.explorer.app import ExplorerApp
    from pellucid.server.http.limits import Access
    from pellucid.server.http.listen import DrainingServer

    worker = await opening
    try:
        running = asyncio.create_task(worker.ask("run", run)) if run else None
        if running:
            await wait_until_encoded(worker, running)
        access = Access(get_port(listening), secrets.token_urlsafe(24))
        app = ExplorerApp(worker, read_page_files(), access)
        say(app.address)
        if opens_browser and not open_browser(app.entrance.make_link()):
            say("There is no graphical browser here: open this address in one.")
        say("Ctrl-C ends the explorer.")
        server = DrainingServer(app, DRAIN_SECONDS)
        await server.serve([listening])
        return server.ended_by
    finally:
        await worker.close()


async def wait_until_encoded(worker: ExplorerWorker, running: "asyncio.Task[tuple[int, bytes]]") -> None:
    """Returns when a run computes; raises where its prompt is refused."""
    while not running.done():
        _, body = await worker.ask("session")
        if json.loads(body).get("busy"):
            return
        await asyncio.wait([running], timeout=POLL_SECONDS)
    status, body = running.result()
    if status != 200:
        kind = UsageError if status < 500 else ResourceError
        raise kind(json.loads(body)["error"]["message"])


TEXT_BROWSERS = {"www-browser", "links", "elinks", "lynx", "w3m"}
"""They would take over the terminal, and run no script."""


def open_browser(address: str) -> bool:
    """Opens an address in a graphical browser; returns whether there is one."""
    has_display = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if not has_display:
        return False
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    if PurePath(getattr(browser, "name", "")).name in TEXT_BROWSERS:
        return False
    # Some browsers are waited for until they are closed.
    threading.Thread(target=_open, args=(browser, address), daemon=True).start()
    return True


def _open(browser: webbrowser.BaseBrowser, address: str) -> None:
    try:
        browser.open(address)
    except (OSError, webbrowser.Error):  # the address is printed as well
        return

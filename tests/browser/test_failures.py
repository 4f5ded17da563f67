"""What goes wrong is said on the page, which is never blank, and Retry tries again."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import pellucid
from pellucid.base.errors import PellucidError
from pellucid.explanation.address import parse
from tests.browser import served
from tests.browser.driver import Visitor, go, wait_until_drawn, walk, why
from tests.browser.served import Served

REFUSED = ("Failed to load resource",)
WRONG = (
    "nothing[t=9]",
    "probs[t=9,v=0]",
    "logits[x=1]",
    "probs[t=0,v=Z]",
    "[",
    "probs[",
    "a" * 4000,
    "d.probs[0]",
)


def kill_worker(server: Served) -> None:
    """Kills the process that holds the session; the HTTP process goes on."""
    pid = server.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert children
    for child in children:
        os.kill(int(child), signal.SIGKILL)


def test_a_wrong_address_gets_the_message_of_explain(
    visit: Callable[..., Visitor], serve: Callable[..., Served]
) -> None:
    visitor = visit()
    visitor.expected = REFUSED
    page = visitor.explore(serve("abcd", "A B"))
    trace = pellucid.load("abcd").trace("A B")
    for at, (failure, _) in zip(WRONG, walk(page, [why(at) for at in WRONG]), strict=True):
        with pytest.raises(PellucidError) as error:
            parse(trace, at)
        assert failure is not None and str(error.value) in failure


def test_a_prompt_that_cannot_be_read_is_answered_in_the_form(
    visit: Callable[..., Visitor], serve: Callable[..., Served]
) -> None:
    visitor = visit()
    visitor.expected = REFUSED
    page = visitor.explore(serve("abcd", "A B"), "#read")
    page.fill("#prompt", "A Z")
    page.press("#prompt", "Control+Enter")
    page.wait_for_selector("#run .error")
    assert "'Z'" in page.inner_text("#run .error")
    assert page.input_value("#prompt") == "A Z"


def test_a_killed_session_says_so_and_retry_brings_it_back_until_the_server_is_stopped(
    visit: Callable[..., Visitor],
) -> None:
    server = served.start("abcd", "A B")
    try:
        visitor = visit()
        visitor.expected = REFUSED
        page = visitor.explore(server)
        kill_worker(server)
        go(page, why("logits[t=1,v=2]"))
        assert page.inner_text(".failure p")
        page.click(".failure button")
        page.wait_for_selector("#prompt")
        page.fill("#prompt", "A B")
        page.press("#prompt", "Control+Enter")
        page.wait_for_selector(".headline")
        wait_until_drawn(page)
    finally:
        server.stop()
    go(page, why("embed.weight[v=0,c=0]"))
    assert "terminal" in page.inner_text(".failure")


def test_a_page_without_its_key_asks_for_it(
    visit: Callable[..., Visitor], serve: Callable[..., Served]
) -> None:
    visitor = visit()
    visitor.expected = REFUSED
    server = serve("abcd", "A B")
    page = visitor.open(f"{server.address.partition('#')[0]}#why/probs[t=1,v=2]")
    page.wait_for_selector(".failure")
    assert page.inner_text(".failure p")
    for key, shown in (("wrong", ".failure:not([data-old])"), (server.key, ".headline")):
        page.evaluate("() => { document.querySelector('.failure').dataset.old = '' }")
        page.fill(".failure input", key)
        page.press(".failure input", "Enter")
        page.wait_for_selector(shown)
    assert server.key not in page.url

"""One Chromium for all tests of the page, a context for each, and one server for each command line."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import served
from tests.browser.driver import BROWSER_ARGUMENTS, Visitor
from tests.browser.served import Served

CHROMIUM = shutil.which("chromium")
HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of this folder; without a browser they skip."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if not CHROMIUM:
                item.add_marker(pytest.mark.skip(reason="no chromium: `make browser` installs it"))


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """The browser is closed after the last test of this folder: until then the event loop of playwright runs,
    and another test of this process could start none."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=BROWSER_ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Visitor]]:
    """Returns a function that opens a fresh context; each is checked and closed at the end of the test."""
    visitors: list[Visitor] = []

    def visit(**settings: Any) -> Visitor:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | settings)
        context.set_default_timeout(10_000)
        visitors.append(Visitor(context.new_page()))
        return visitors[-1]

    yield visit
    try:
        for visitor in visitors:
            visitor.check()
    finally:
        for visitor in visitors:
            visitor.page.context.close()


@pytest.fixture(scope="package")
def serve() -> Iterator[Callable[..., Served]]:
    """Returns a function that starts an explorer, or finds the one with the same arguments."""
    running: dict[tuple[str, ...], Served] = {}

    def serve(*arguments: str) -> Served:
        if arguments not in running:
            running[arguments] = served.start(*arguments)
        return running[arguments]

    yield serve
    for server in running.values():
        server.stop()

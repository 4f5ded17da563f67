"""Anybody can use the page: axe-core finds nothing to mend, in any scheme, on any screen."""

from collections.abc import Callable
from pathlib import Path

import axe_playwright_python
import pytest
from playwright.sync_api import Page

from tests.browser.driver import Visitor, go
from tests.browser.served import Served

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8")
SCREENS = ("#read", "#why", "#map", "#attention", "#why/nothing[t=9]")


def find_violations(page: Page) -> list[str]:
    """Returns what axe-core would mend: the rule, and the elements."""
    page.evaluate(AXE)  # the page's policy stops a script element, not this
    found = page.evaluate("async () => (await axe.run({ resultTypes: ['violations'] })).violations")
    return [f"{rule['id']}: {[node['html'] for node in rule['nodes'][:3]]}" for rule in found]


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("light", 1280),
        ("dark", 320),
        ("light", 320),
        ("dark", 1280),
    ],
)
def test_axe_finds_no_violation(
    visit: Callable[..., Visitor], serve: Callable[..., Served], scheme: str, width: int
) -> None:
    visitor = visit(color_scheme=scheme, viewport={"width": width, "height": 800})
    visitor.expected = ("Failed to load resource",)
    page = visitor.explore(serve("abcd", "A B"))
    for screen in SCREENS:
        go(page, screen)
        assert find_violations(page) == [], screen


def test_axe_notices_a_text_that_is_too_faint(
    visit: Callable[..., Visitor], serve: Callable[..., Served]
) -> None:
    page = visit().explore(serve("abcd", "A B"), "#read")
    page.evaluate("() => { document.querySelector('h1').style.color = '#ddd' }")
    assert any(found.startswith("color-contrast") for found in find_violations(page))

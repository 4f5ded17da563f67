"""A screen comes at once: the limits here are several times what benchmarks/explorer.py measures."""

from collections.abc import Iterator
from typing import Any

import pytest

import pellucid
from tests.browser.driver import why
from tests.browser.test_shown_numbers import RUN_ARGUMENTS, UPDATE, list_cells
from tests.browser.timing import find_percentile, measure_click, measure_start

pytestmark = pytest.mark.timed


@pytest.fixture(scope="module")
def started(browser: Any) -> Iterator[Any]:
    times, server, page = measure_start(browser, "abcd", "A B", *RUN_ARGUMENTS)
    yield times, page
    page.context.close()
    server.stop()


def test_the_first_screen_of_abcd_comes_within_three_seconds(started: Any) -> None:
    times, _ = started
    assert times.numbers <= 3.0


def test_a_click_is_drawn_within_a_third_of_a_second(started: Any) -> None:
    _, page = started
    cells = list_cells(pellucid.load("abcd").trace("A B", target="C", **UPDATE))[::6]
    clicks = [measure_click(page, why(at)) for at in cells]
    assert find_percentile([click.drawn for click in clicks], 0.95) <= 300
    assert find_percentile([time for click in clicks for time in click.server], 0.95) <= 50

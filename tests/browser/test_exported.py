"""An exported page opens from a file, without a network, and shows the same numbers."""

from collections.abc import Callable
from pathlib import Path

import pytest

import pellucid
from tests.browser import served
from tests.browser.driver import Visitor, go, read_numbers, wait_until_drawn, walk, why
from tests.browser.test_access import find_violations
from tests.browser.test_shown_numbers import RUN_ARGUMENTS, UPDATE, find_wrong, list_cells

MOST_BYTES = 1_000_000
SCREENS = ("#read", "#why", "#map", "#attention")


@pytest.fixture(scope="package")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`abcd` with its forward and backward pass and one update."""
    return served.export(tmp_path_factory.mktemp("exported") / "page.html", "abcd", "A B", *RUN_ARGUMENTS)


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.torture)])
def test_a_file_holds_the_cells_of_abcd(visit: Callable[..., Visitor], exported: Path, stride: int) -> None:
    visitor = visit(offline=True)
    page = visitor.open(exported.as_uri())
    wait_until_drawn(page)
    trace = pellucid.load("abcd").trace("A B", target="C", **UPDATE)
    cells = list_cells(trace)[::stride]
    screens = walk(page, [why(at) for at in cells])
    assert [failure for failure, _ in screens if failure] == []
    assert find_wrong(trace, [number for _, numbers in screens for number in numbers]) == []
    assert exported.stat().st_size <= MOST_BYTES
    assert all(url.startswith(("file:", "data:")) for url in visitor.requests)


def test_every_screen_of_a_file_is_drawn(visit: Callable[..., Visitor], exported: Path) -> None:
    page = visit(offline=True).open(exported.as_uri())
    wait_until_drawn(page)
    for screen in SCREENS:
        go(page, screen)
        assert page.locator(".failure").count() == 0
    assert page.locator("#run, input.edit, #edits").count() == 0, "a file runs and edits nothing"


@pytest.mark.torture
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation_in_a_file(visit: Callable[..., Visitor], exported: Path, scheme: str) -> None:
    page = visit(offline=True, color_scheme=scheme).open(exported.as_uri())
    wait_until_drawn(page)
    for screen in SCREENS:
        go(page, screen)
        assert find_violations(page) == []


def test_what_a_file_leaves_out_says_so_and_names_the_command(
    visit: Callable[..., Visitor], tmp_path: Path
) -> None:
    file = served.export(tmp_path / "small.html", "abcd", "A B", "--size", "150kB")
    page = visit(offline=True).open(file.as_uri())
    wait_until_drawn(page)
    go(page, why("probs[t=0,v=77]"))
    assert "pellucid explain abcd" in page.inner_text(".failure")
    assert read_numbers(page) == []

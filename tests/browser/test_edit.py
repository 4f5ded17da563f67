"""A number is given in place: what changed is marked, and undo, redo and reset go through the traces.

These tests have a server of their own: an edited trace is the newest, and would be what other tests open."""

from collections.abc import Callable

from tests.browser.driver import Visitor, go, read_numbers, tab_to, wait_until_drawn, why
from tests.browser.served import Served


def test_an_edit_is_undone_made_again_and_reset(
    visit: Callable[..., Visitor], serve: Callable[..., Served]
) -> None:
    visitor = visit()
    page = visitor.explore(serve("abcd", "A B", "--target", "B"), why("unembed.weight[v=2,c=1]"))
    before = read_numbers(page)
    tab_to(page, "td[data-at='unembed.weight[v=2,c=1]']")
    page.keyboard.press("e")
    page.wait_for_selector("input.edit")
    page.keyboard.type("three")
    page.keyboard.press("Enter")
    assert "not a number" in page.inner_text(".edit-problem")
    page.keyboard.press("Control+a")
    page.keyboard.type("3")
    page.keyboard.press("Enter")
    page.wait_for_selector("#edits")
    wait_until_drawn(page)
    assert page.inner_text(".headline") == "3"
    assert page.locator("td.changed").count() == 1
    assert "C" in page.inner_text("#edits p")

    go(page, "#read")
    after = [number.text for number in read_numbers(page)]
    page.keyboard.press("Control+z")
    page.wait_for_selector("#redo:enabled")
    wait_until_drawn(page)
    original = [number.text for number in read_numbers(page)]
    assert original != after
    page.keyboard.press("Control+Shift+z")
    page.wait_for_selector("#undo:enabled")
    wait_until_drawn(page)
    assert [number.text for number in read_numbers(page)] == after
    tab_to(page, "#reset")
    page.keyboard.press("Enter")
    page.wait_for_selector("#redo:enabled")
    wait_until_drawn(page)
    go(page, why("unembed.weight[v=2,c=1]"))
    assert read_numbers(page) == before


def test_an_edited_activation_says_what_its_formula_gives(
    visit: Callable[..., Visitor], serve: Callable[..., Served]
) -> None:
    at = "blocks.0.attn.scores[t=1,s=0]"
    page = visit().explore(serve("abcd", "A B", "--target", "B"), why(at))
    computed = page.inner_text(".headline")
    tab_to(page, f"td[data-at='{at}']")
    page.keyboard.press("e")
    page.wait_for_selector("input.edit")
    page.keyboard.type("-2.5")
    page.keyboard.press("Escape")
    page.wait_for_selector("input.edit", state="detached")
    assert page.inner_text(".headline") == computed, "Esc cancels"
    page.keyboard.press("e")
    page.wait_for_selector("input.edit")
    page.keyboard.type("-2.5")
    page.keyboard.press("Enter")
    page.wait_for_selector(".edited")
    wait_until_drawn(page)
    assert page.inner_text(".headline") == "−2.5"
    assert f"gives {computed}" in page.inner_text(".edited")
    go(page, why("probs[t=1,v=1]"))
    assert page.locator("td.changed").count() > 4, "what reads the edited number is marked"

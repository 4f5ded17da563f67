"""A learner's walk through every screen with the keyboard alone: on a wide page, at 200 % zoom, at 320 px."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.browser.driver import Visitor, go, has_focus, tab_to, wait_until_drawn
from tests.browser.served import Served
from tests.browser.test_shown_numbers import RUN_ARGUMENTS

WIDE = {"viewport": {"width": 1280, "height": 900}}
ZOOMED = {"viewport": {"width": 640, "height": 450}, "device_scale_factor": 2}
PHONE = {"viewport": {"width": 320, "height": 640}}
WEIGHT_OF_A = "blocks.0.attn.pattern[t=1,s=0]"


def open_with(page: Page, key: str) -> None:
    """Presses a key that opens another screen, and waits until that is drawn."""
    before = page.evaluate("location.hash")
    page.keyboard.press(key)
    page.wait_for_selector(f"#main[data-drawn]:not([data-drawn='{before}'])", state="attached")


def go_back(page: Page) -> None:
    """Goes back as the browser's own key does, which a page without a window does not hear."""
    before = page.evaluate("location.hash")
    page.evaluate("history.back()")
    page.wait_for_selector(f"#main[data-drawn]:not([data-drawn='{before}'])", state="attached")


def check_layout(page: Page) -> None:
    """Nothing but tables and formulas scrolls sideways, and the screen begins with a heading."""
    width, room = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert width <= room, f"{page.url}: {width} px in {room} px"
    assert page.locator("main h1").count() == 1
    assert page.inner_text("main h1").strip()


@pytest.mark.rotating
@pytest.mark.parametrize(
    "settings",
    [WIDE, PHONE, ZOOMED],
    ids=["1280px", "320px", "zoom200"],
)
def test_from_a_prompt_to_the_embeddings(
    visit: Callable[..., Visitor], serve: Callable[..., Served], settings: dict[str, object]
) -> None:
    visitor = visit(**settings)
    page = visitor.explore(serve("abcd"))
    check_layout(page)

    tab_to(page, "#prompt")
    page.keyboard.press("Control+a")
    page.keyboard.type("A B")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#live:has-text('finished')", state="attached")
    wait_until_drawn(page)
    check_layout(page)

    tab_to(page, "table.next a")
    opened = [page.evaluate("document.activeElement.dataset.at")]
    open_with(page, "Enter")
    while page.locator("a.operand").count():
        assert has_focus(page, "h1"), "the heading of a new screen has the focus"
        check_layout(page)
        assert page.get_attribute(".headline", "data-at") == opened[-1]
        tab_to(page, "a.operand")
        opened.append(page.evaluate("document.activeElement.dataset.at"))
        open_with(page, "Enter")
        assert len(opened) < 30
    check_layout(page)
    names = [at.partition("[")[0] for at in opened]
    assert names[:2] == ["probs", "logits"]
    assert names[-1] == "embed.weight"

    for at in reversed(opened[:-1]):
        go_back(page)
        assert page.get_attribute(".headline", "data-at") == at
        assert has_focus(page, "a.operand"), "going back returns to the number that was opened"
    go_back(page)
    assert page.evaluate("document.activeElement.dataset.at") == opened[0]


def test_a_key_works_in_the_frame_in_which_the_list_of_keys_closes(
    visit: Callable[..., Visitor], serve: Callable[..., Served]
) -> None:
    """Until the next frame the focus is still on a button of the closed dialog."""
    page = visit().explore(serve("abcd", "A B"))
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    page.evaluate(
        """() => {
          document.querySelector("dialog").close();
          const key = new KeyboardEvent("keydown", { key: "/", bubbles: true, cancelable: true });
          document.activeElement.dispatchEvent(key);
        }"""
    )
    page.wait_for_selector("#search:focus")


@pytest.mark.rotating
@pytest.mark.parametrize("settings", [WIDE, PHONE], ids=["1280px", "320px"])
def test_the_other_screens(
    visit: Callable[..., Visitor], serve: Callable[..., Served], settings: dict[str, object]
) -> None:
    page = visit(**settings).explore(serve("abcd", "A B"))
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    assert "edit the number" in page.inner_text("dialog")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog[open]", state="detached")

    page.keyboard.press("/")
    page.wait_for_selector("#search:focus")
    page.keyboard.type("attn.patt")
    page.wait_for_selector("#suggestions [role=option]")
    page.keyboard.press("ArrowDown")
    open_with(page, "Enter")
    check_layout(page)
    tab_to(page, "td[data-at]")
    page.keyboard.press("Control+End")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.dataset.at") == WEIGHT_OF_A
    assert "0.1956" in page.inner_text("#live")
    open_with(page, "Enter")
    assert page.get_attribute(".headline", "data-at") == WEIGHT_OF_A

    open_with(page, "Space")
    assert page.get_attribute(".headline", "data-at").startswith("blocks.0.attn.")
    open_with(page, "Shift+Space")
    assert page.get_attribute(".headline", "data-at").startswith("blocks.0.attn.pattern")

    tab_to(page, "nav a[data-screen=map]", key="Shift+Tab")
    open_with(page, "Enter")
    check_layout(page)
    tab_to(page, "button[data-name='logits']")
    page.keyboard.press("Enter")
    page.wait_for_selector("main td[data-at^='logits']")
    check_layout(page)
    tab_to(page, "td[data-at^='logits']")

    tab_to(page, "nav a[data-screen=attention]", key="Shift+Tab")
    open_with(page, "Enter")
    check_layout(page)
    tab_to(page, "table.heads td")
    page.keyboard.press("Enter")
    tab_to(page, "td[data-at^='blocks.0.attn.pattern']")
    open_with(page, "Enter")


@pytest.mark.rotating
@pytest.mark.parametrize("settings", [ZOOMED, PHONE], ids=["zoom200", "320px"])
def test_nothing_but_tables_scrolls_sideways(
    visit: Callable[..., Visitor], serve: Callable[..., Served], settings: dict[str, object]
) -> None:
    """Every screen of a run with gradients and an update."""
    page = visit(**settings).explore(serve("abcd", "A B", *RUN_ARGUMENTS))
    screens = ("#read", "#why", "#map/embed.weight", "#attention/0/0", "#why/blocks.0.attn.q_proj.weight")
    for hash in (*screens, "#why/unembed.weight@1[v=0,c=0]", "#why/d.logits[t=1,v=2]"):
        go(page, hash)
        check_layout(page)

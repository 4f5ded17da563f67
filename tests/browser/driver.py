"""A browser page that remembers what must not happen on it, and the few gestures that the tests repeat."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from playwright.sync_api import Page, Route

from tests.browser.served import Served

MOST_TABS = 150
BROWSER_ARGUMENTS = ["--no-sandbox", "--disable-background-networking"]
REPORT_VIOLATIONS = """
globalThis.__violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  globalThis.__violations.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`));
"""
READ_NUMBERS = """
() => {
  const numbers = [];
  for (const element of document.querySelectorAll("main [data-at]")) {
    const number = element.matches("td, .number") ? element : element.querySelector(":scope > .number");
    if (!number) continue;
    const place = number.matches(".headline") ? "headline" : number.matches("td") ? "table" :
      number.closest(".line") ? "line" : "other";
    numbers.push([element.dataset.at, place, number.textContent]);
  }
  return numbers;
}
"""
WALK = f"""
async (hashes) => {{
  const main = document.getElementById("main");
  const read = {READ_NUMBERS};
  const found = [];
  for (const hash of hashes) {{
    location.hash = hash;
    const end = performance.now() + 10_000;
    while (main.dataset.drawn !== location.hash) {{
      if (performance.now() > end) throw new Error(`${{hash}} was not drawn: ${{main.innerText}}`);
      await new Promise((resolve) => setTimeout(resolve, 2));
    }}
    found.push([main.querySelector(".failure")?.innerText ?? null, read()]);
  }}
  return found;
}}
"""


class ShownNumber(NamedTuple):
    """A number on the page: its address, the place where it stands and its text."""

    at: str
    place: str
    text: str


@dataclass
class Visitor:
    """A page with what happened on it: errors, dialogs, and requests that left its origin."""

    page: Page
    origin: str = ""
    expected: tuple[str, ...] = ()
    """Parts of the messages that a test provokes."""
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("pageerror", lambda error: self.errors.append(f"exception: {error}"))
        self.page.on("crash", lambda _: self.errors.append("the page crashed"))
        self.page.on("dialog", self._dismiss)
        self.page.on(
            "console", lambda said: said.type in ("error", "warning") and self.errors.append(said.text)
        )
        self.page.on("popup", lambda other: self.errors.append(f"another window: {other.url}"))
        self.page.on("download", lambda loaded: self.errors.append(f"download: {loaded.url}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.add_init_script(REPORT_VIOLATIONS)

    def _dismiss(self, dialog: Any) -> None:
        self.errors.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, address: str) -> Page:
        """Opens the first page; nothing may be asked of another origin from then on."""
        parts = urlsplit(address)
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.page.goto(address)
        return self.page

    def explore(self, server: Served, hash: str = "") -> Page:
        """Opens an explorer on one of its screens, and waits until that is drawn."""
        self.open(server.address + hash.replace("#", "&", 1))
        wait_until_drawn(self.page)
        return self.page

    def check(self) -> None:
        """Fails where something happened that the test did not provoke."""
        violations = self.page.evaluate("globalThis.__violations ?? []")
        unexpected = [said for said in self.errors if not any(part in said for part in self.expected)]
        left = [url for url in self.requests if not url.startswith((self.origin, "data:"))]
        assert not violations, violations
        assert not unexpected, unexpected
        assert not left, left


def why(at: str) -> str:
    """Returns the hash of a number's screen."""
    return f"#why/{quote(at, safe='')}"


def wait_until_drawn(page: Page, hash: str | None = None) -> None:
    """Waits until a screen is drawn with all its parts; without a hash, any screen."""
    shown = "[data-drawn]" if hash is None else f"[data-drawn={json.dumps(hash)}]"
    page.wait_for_selector(f"#main{shown}", state="attached")


def go(page: Page, hash: str) -> None:
    """Opens a screen by the address bar."""
    page.evaluate("(hash) => { location.hash = hash }", hash)
    wait_until_drawn(page, hash)


def walk(page: Page, hashes: list[str]) -> list[tuple[str | None, list[ShownNumber]]]:
    """Opens screens one after another; returns the message of each that failed, and its numbers."""
    found = page.evaluate(WALK, hashes)
    return [(failure, [ShownNumber(*number) for number in numbers]) for failure, numbers in found]


def read_numbers(page: Page) -> list[ShownNumber]:
    """Returns every number that opens on the page."""
    return [ShownNumber(*number) for number in page.evaluate(READ_NUMBERS)]


def has_focus(page: Page, selector: str) -> bool:
    found: bool = page.evaluate("(selector) => document.activeElement.matches(selector)", selector)
    return found


def tab_to(page: Page, selector: str, key: str = "Tab") -> None:
    """Presses Tab until an element has the focus."""
    for _ in range(MOST_TABS):
        page.keyboard.press(key)
        if has_focus(page, selector):
            return
    raise AssertionError(f"{MOST_TABS} × {key} do not reach {selector}")


def load_modules(visitor: Visitor, folder: Path) -> Page:
    """Opens an empty page on which `import("./number.js")` finds the module in a folder."""

    def answer(route: Route) -> None:
        name = urlsplit(route.request.url).path.lstrip("/")
        if name:
            route.fulfill(path=folder / name, content_type="text/javascript")
        else:
            route.fulfill(body="<!doctype html><link rel=icon href='data:,'>", content_type="text/html")

    visitor.page.route("http://modules.test/**", answer)
    return visitor.open("http://modules.test/")

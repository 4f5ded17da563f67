"""A browser page that remembers what must not happen on it, and the few gestures that the tests repeat."""

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Page, Request, Route

REPORT_VIOLATIONS = """
globalThis.__violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  globalThis.__violations.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`));
"""
READ_NUMBERS = """
() => [...document.querySelectorAll("[data-at]")].map((element) => [element.dataset.at, element.textContent])
"""


@dataclass
class Visitor:
    """A page with what happened on it: errors, dialogs, and requests that left its origin."""

    page: Page
    origin: str = ""
    expected: tuple[str, ...] = ()
    """Parts of messages that this test provokes."""
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("pageerror", lambda error: self.errors.append(f"exception: {error}"))
        self.page.on("crash", lambda _: self.errors.append("the page crashed"))
        self.page.on(
            "dialog", lambda dialog: (self.errors.append(f"dialog: {dialog.message}"), dialog.dismiss())
        )
        self.page.on(
            "console", lambda said: said.type in ("error", "warning") and self.errors.append(said.text)
        )
        self.page.on("popup", lambda other: self.errors.append(f"another window: {other.url}"))
        self.page.on("download", lambda loaded: self.errors.append(f"download: {loaded.url}"))
        self.page.on("request", self._see)
        self.page.add_init_script(REPORT_VIOLATIONS)

    def _see(self, request: Request) -> None:
        self.requests.append(request.url)

    def open(self, address: str) -> Page:
        """Opens the first page; nothing may be asked of another origin from then on."""
        parts = urlsplit(address)
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.page.goto(address)
        return self.page

    def check(self) -> None:
        """Fails where something went wrong that the test did not provoke."""
        violations = self.page.evaluate("globalThis.__violations ?? []")
        unexpected = [said for said in self.errors if not any(part in said for part in self.expected)]
        left = [url for url in self.requests if not url.startswith((self.origin, "data:"))]
        assert not violations
        assert not unexpected
        assert not left


def read_numbers(page: Page) -> list[tuple[str, str]]:
    """Returns address and text of every number that is on the page."""
    return [(at, text) for at, text in page.evaluate(READ_NUMBERS)]


def load_modules(visitor: "Visitor", folder: Path) -> Page:
    """Opens an empty page on which `import("./number.js")` finds the module in a folder."""

    def answer(route: Route) -> None:
        name = urlsplit(route.request.url).path.lstrip("/")
        if name:
            route.fulfill(path=folder / name, content_type="text/javascript")
        else:
            route.fulfill(body="<!doctype html><link rel=icon href='data:,'>", content_type="text/html")

    visitor.page.route("http://modules.test/**", answer)
    return visitor.open("http://modules.test/")

"""How long a screen takes: from the command, and from a click, until it is drawn."""

import time
from dataclasses import dataclass

from playwright.sync_api import Browser, Page

from tests.browser import served
from tests.browser.driver import wait_until_drawn
from tests.browser.served import Served

CLICK = """
async (hash) => {
  const main = document.getElementById("main");
  performance.clearResourceTimings();
  const link = Object.assign(document.createElement("a"), { href: hash });
  main.append(link);
  const start = performance.now();
  link.click();
  while (main.dataset.drawn !== location.hash || location.hash !== hash) {
    if (performance.now() > start + 30_000) throw new Error(`${hash} was not drawn: ${main.innerText}`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  await new Promise(requestAnimationFrame);
  const drawn = performance.now() - start;
  const asked = performance.getEntriesByType("resource").flatMap((entry) => entry.serverTiming ?? []);
  return [drawn, asked.map(({ duration }) => duration)];
}
"""
EDIT = """
async ([at, value]) => {
  const key = sessionStorage.getItem("pellucid.key");
  const headers = { "Content-Type": "application/json", Authorization: `Bearer ${key}` };
  const start = performance.now();
  const sent = await fetch("/api/edit", { method: "POST", headers, body: JSON.stringify({ at, value }) });
  const answer = await sent.json();
  if (!sent.ok) throw new Error(JSON.stringify(answer));
  return [performance.now() - start, answer.steps_run, answer.steps];
}
"""


@dataclass(frozen=True)
class FirstScreens:
    """Seconds from the command to its address, to the tokens in the header, and to the first numbers."""

    address: float
    tokens: float
    numbers: float


@dataclass(frozen=True)
class Click:
    """Milliseconds from a click until the screen is drawn, and of the server for each question."""

    drawn: float
    server: list[float]


def measure_start(browser: Browser, *arguments: str) -> tuple[FirstScreens, Served, Page]:
    """Starts an explorer and waits for its first screen in a fresh tab; the caller stops it."""
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    start = time.perf_counter()
    server = served.start(*arguments)
    address = time.perf_counter() - start
    page.goto(server.address)
    page.wait_for_selector(".chips li")
    tokens = time.perf_counter() - start
    page.wait_for_selector("table.next a.number")
    numbers = time.perf_counter() - start
    wait_until_drawn(page)
    return FirstScreens(address, tokens, numbers), server, page


def measure_click(page: Page, hash: str) -> Click:
    """Opens a screen by a link on the page."""
    spelled = page.evaluate("(hash) => new URL(hash, location.href).hash", hash)
    drawn, server = page.evaluate(CLICK, spelled)
    return Click(drawn, server)


def measure_edit(page: Page, at: str, value: float) -> tuple[float, int, int]:
    """Gives a number another value; returns the milliseconds, the steps that ran again, and all steps."""
    milliseconds, run, steps = page.evaluate(EDIT, [at, value])
    return milliseconds, run, steps


def find_percentile(times: list[float], share: float) -> float:
    """Returns the smallest of the times that `share` of them do not exceed."""
    return sorted(times)[max(0, -int(-share * len(times) // 1) - 1)]

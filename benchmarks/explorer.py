"""The explorer in Chromium: its first screens, a click until it is drawn, all heads, an edit.

python -m benchmarks.explorer; with SmolLM2 where PELLUCID_SMOLLM2 names its file
"""

import datetime
import os
import platform
import random
import shutil

from playwright.sync_api import Browser, Page, sync_playwright

from pellucid.explanation.trace import Trace
from pellucid.model import load
from tests.browser.driver import BROWSER_ARGUMENTS, why
from tests.browser.served import Served
from tests.browser.timing import Click, find_percentile, measure_click, measure_edit, measure_start

CLICKS = 100
LONG = "the cat sat on the mat and looked at the dog that ran to the house on the hill . " * 8
EDITS = {"block 29": "blocks.29.mlp.act", "block 15": "blocks.15.mlp.act", "the embedding": "embed.weight"}


def draw_cells(trace: Trace, count: int) -> list[str]:
    """Returns the addresses of cells of any values."""
    rng = random.Random(0)
    names = rng.choices([name for name in trace.tape.values if trace.value(name).size], k=count)
    return [trace.address(name, tuple(map(rng.randrange, trace.value(name).shape))) for name in names]


def print_clicks(what: str, clicks: list[Click]) -> None:
    drawn, server = [click.drawn for click in clicks], [time for click in clicks for time in click.server]
    print(
        f"{what:34}{find_percentile(drawn, 0.5):.0f} ms, 95 % within {find_percentile(drawn, 0.95):.0f} ms "
        f"(asked ≤ 100); the server's part 95 % within {find_percentile(server, 0.95):.1f} ms (asked ≤ 10)"
    )


def measure(browser: Browser, model: str, prompt: str, asked: str) -> tuple[Page, Served]:
    """Starts an explorer, prints its first screens and its clicks; returns its page and server."""
    first, server, page = measure_start(browser, model, prompt)
    name = os.path.basename(model)
    print(
        f"{name + ': the first screens':34}address {first.address:.2f} s, tokens {first.tokens:.2f} s, "
        f"next tokens {first.numbers:.2f} s (asked {asked})"
    )
    cells = draw_cells(load(model).trace(prompt), CLICKS)
    print_clicks(f"{name}: a click", [measure_click(page, why(at)) for at in cells])
    heads = measure_click(page, "#attention")
    print(f"{name + ': all heads':34}{heads.drawn:.0f} ms (asked ≤ 250)")
    return page, server


def main() -> None:
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{datetime.date.today()}  {machine}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=BROWSER_ARGUMENTS)
        page, server = measure(browser, "abcd", "A B", "≤ 1 s")
        server.stop()
        if path := os.environ.get("PELLUCID_SMOLLM2"):
            page, server = measure(browser, path, "The cat sat on", "tokens ≤ 1.5 s, next tokens ≤ 3 s")
            for what, name in EDITS.items():
                at = f"{name}[v=504,c=3]" if name == "embed.weight" else f"{name}[t=3,f=7]"
                milliseconds, run, steps = measure_edit(page, at, 2.0)
                print(f"an edit in {what:23}{milliseconds:.0f} ms, {run} of {steps} steps (asked ≤ 500)")
            server.stop()
            _, server = measure(browser, path, LONG[:440], "not stated for a long prompt")
            server.stop()
        browser.close()


if __name__ == "__main__":
    main()

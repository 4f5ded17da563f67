"""Pictures of every screen of the explorer: python -m scripts.screenshots [MODEL PROMPT …]

They are written to screenshots/, which is not committed, for a person to look at.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.browser import served
from tests.browser.driver import BROWSER_ARGUMENTS, go, wait_until_drawn

FOLDER = Path(__file__).parents[1] / "screenshots"
SCREENS = {
    "read": "#read",
    "why": "#why",
    "why-gradient": "#why/d.logits[t=0,v=0]",
    "map": "#map/logits",
    "attention": "#attention",
    "wrong-address": "#why/nothing[t=9]",
}
VIEWS = {
    "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 320, "height": 640}, "color_scheme": "light"},
}


def shoot(page: Page, name: str) -> None:
    """Writes a picture of the whole page."""
    FOLDER.mkdir(exist_ok=True)
    page.screenshot(path=FOLDER / f"{name}.png", full_page=True)
    print(FOLDER / f"{name}.png")


def main(model: str = "abcd", prompt: str = "A B", *arguments: str) -> None:
    server = served.start(model, prompt, *arguments)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=BROWSER_ARGUMENTS
            )
            for view, settings in VIEWS.items():
                page = browser.new_context(**settings).new_page()
                page.goto(server.address)
                wait_until_drawn(page)
                for screen, hash in SCREENS.items():
                    go(page, hash)
                    shoot(page, f"{Path(model).stem}-{screen}-{view}")
            browser.close()
    finally:
        server.stop()


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["abcd", "A B", "--target", "C", "--update", "sgd"]))

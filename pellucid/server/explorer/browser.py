"""Opening the reader's browser: the graphical one, where there is one, and without waiting for it."""

import os
import sys
import threading
import webbrowser
from pathlib import PurePath

TEXT_BROWSERS = {"www-browser", "links", "elinks", "lynx", "w3m"}
"""They would take over the terminal, and run no script."""


def open_browser(address: str) -> bool:
    """Opens an address in a graphical browser; returns whether there is one."""
    has_display = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if not has_display:
        return False
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    if PurePath(getattr(browser, "name", "")).name in TEXT_BROWSERS:
        return False
    # Some browsers are waited for until they are closed.
    threading.Thread(target=_open, args=(browser, address), daemon=True).start()
    return True


def _open(browser: webbrowser.BaseBrowser, address: str) -> None:
    try:
        browser.open(address)
    except (OSError, webbrowser.Error):  # the address is printed as well
        return

"""A graphical browser is opened without waiting; a text-mode one would take over the terminal."""

import threading
import webbrowser

import pytest

from pellucid.server.explorer import serve


class Opened(webbrowser.BaseBrowser):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.addresses: list[str] = []
        self.is_closed = threading.Event()

    def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
        self.addresses.append(url)
        return self.is_closed.wait(10)


@pytest.fixture
def display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(serve.sys, "platform", "linux")
    monkeypatch.setenv("DISPLAY", ":0")


def test_a_browser_that_stays_open_is_not_waited_for(display: None, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Opened("firefox")
    monkeypatch.setattr(webbrowser, "get", lambda: found)
    assert serve.open_browser("http://127.0.0.1:1/")
    found.is_closed.set()
    assert found.addresses == ["http://127.0.0.1:1/"]


@pytest.mark.parametrize("name", ["lynx", "/usr/bin/w3m", "www-browser"])
def test_a_text_mode_browser_is_not_used(display: None, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    found = Opened(name)
    monkeypatch.setattr(webbrowser, "get", lambda: found)
    assert not serve.open_browser("http://127.0.0.1:1/") and not found.addresses


def test_without_a_display_or_a_browser_there_is_none(display: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def get() -> webbrowser.BaseBrowser:
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr(webbrowser, "get", get)
    assert not serve.open_browser("http://127.0.0.1:1/")
    monkeypatch.delenv("DISPLAY")
    monkeypatch.setattr(webbrowser, "get", lambda: Opened("firefox"))
    assert not serve.open_browser("http://127.0.0.1:1/")


def test_a_browser_that_fails_does_not_fail_the_server(
    display: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Missing(Opened):
        def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
            raise FileNotFoundError(url)

    monkeypatch.setattr(webbrowser, "get", lambda: Missing("firefox"))
    assert serve.open_browser("http://127.0.0.1:1/")

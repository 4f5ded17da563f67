"""Signals: what they unwind, what a second one does, and none that is lost or turned into a traceback."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from pellucid.cli import signals
from pellucid.cli.signals import Terminated, end_by_signals, on_first_signal, say_when_ended


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_every_block(number: signal.Signals) -> None:
    left: list[int] = []
    before, stack = signal.getsignal(number), contextlib.ExitStack()
    stack.callback(left.append, number)
    with pytest.raises(Terminated) as ended, end_by_signals(), stack:
        signal.raise_signal(number)
    assert ended.value.code == 128 + number and left == [number]
    assert signal.getsignal(number) == before


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with end_by_signals():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_hangup_waits_and_a_second_term_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[int] = []
    acted: list[int] = []
    monkeypatch.setattr(os, "_exit", ends.append)
    with on_first_signal(acted.append, signal.SIGTERM, signal.SIGHUP) as received:
        for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM):
            signal.raise_signal(number)
        assert not ends and acted == [signal.SIGHUP] and len(received) == 3
        signal.raise_signal(signal.SIGTERM)
    assert ends == [143]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_inside_a_destructor_is_not_lost(number: signal.Signals) -> None:
    """Python can only report what a destructor raises, as it does while modules are imported."""

    class Dying:
        def __del__(self) -> None:
            signal.raise_signal(number)

    def die() -> None:
        Dying()
        time.sleep(20)

    with pytest.raises((KeyboardInterrupt, Terminated)), end_by_signals():
        die()


def test_the_code_and_the_message_are_those_of_the_signal(capsys: pytest.CaptureFixture[str]) -> None:
    for raised, code in ((KeyboardInterrupt(), 130), (Terminated(143), 143)):
        with pytest.raises(SystemExit) as ended, say_when_ended(lambda: "Go on so."):
            raise raised
        assert ended.value.code == code
        assert capsys.readouterr().err == "Go on so.\n"


def test_an_interrupt_at_the_very_end_of_a_command_is_silent() -> None:
    script = (
        "import atexit, signal, sys; from pellucid.cli import main; "
        "atexit.register(signal.raise_signal, signal.SIGINT); sys.argv[1:] = ['get', '--help']; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGINT and done.stderr == ""


def test_the_names_are_those_of_the_signals(capsys: pytest.CaptureFixture[str]) -> None:
    for code in (130, 143, 129):
        signals.print_end(code)
    assert capsys.readouterr().err.splitlines() == ["interrupted", "ended by SIGTERM", "ended by SIGHUP"]

"""Signals that end a command: SIGTERM and SIGHUP unwind it as Ctrl-C does.

Every block that was entered is left, so that what was being written is removed and child processes end.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pellucid.cli.terminal import print_error

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 128 + signal.SIGINT


class Terminated(SystemExit):
    """SIGTERM or SIGHUP, raised in the main thread; `code` is the exit code, 128 + the signal's number."""

    code: int


@contextmanager
def on_first_signal(act: Callable[[int], None], *numbers: int) -> Iterator[list[int]]:
    """Calls `act` at the first of these signals; a second Ctrl-C or SIGTERM exits at once. Yields the list of
    those received.

    A closed terminal sends SIGHUP, its shell often a second one, so that never exits at once. What is
    ignored, as SIGHUP is under nohup, stays ignored.
    """
    received: list[int] = []

    def handle(number: int, _: Any) -> None:
        if number != signal.SIGHUP and any(before != signal.SIGHUP for before in received):
            os._exit(128 + number)
        received.append(number)
        if len(received) == 1:
            act(number)

    caught = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in caught}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def end_by_signals() -> Iterator[None]:
    """In this block SIGTERM and SIGHUP raise `Terminated`."""

    def end(number: int) -> None:
        raise Terminated(128 + number)

    with on_first_signal(end, signal.SIGTERM, signal.SIGHUP) as received:
        before = sys.unraisablehook

        def repeat(found: Any) -> None:
            """Raises a signal again that came inside a destructor, which can raise nothing."""
            if isinstance(found.exc_value, KeyboardInterrupt | Terminated):
                number = getattr(found.exc_value, "code", INTERRUPTED) - 128
                received.clear()
                threading.Timer(0.01, os.kill, [os.getpid(), number]).start()
            else:
                before(found)

        sys.unraisablehook = repeat
        try:
            yield
        finally:
            sys.unraisablehook = before


@contextmanager
def interruptible() -> Iterator[None]:
    """In this block the signals that end a command end the process, also while a native library computes.

    Python acts on a signal when its main thread runs Python again, which inside such a library may be never.
    Here another thread waits for the signal.
    """
    numbers = [number for number in ENDING if callable(signal.getsignal(number))]  # not what is ignored
    if not numbers or not hasattr(signal, "sigtimedwait"):
        yield
        return
    ended = threading.Event()

    def wait() -> None:
        while not ended.is_set():
            if found := signal.sigtimedwait(numbers, 0.1):
                print_end(128 + found.si_signo)
                os._exit(128 + found.si_signo)

    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    try:
        yield
    finally:
        ended.set()
        waiting.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def print_end(code: int) -> None:
    """Prints what ended the command, by its exit code."""
    name = "interrupted" if code == INTERRUPTED else f"ended by {signal.Signals(code - 128).name}"
    print_error(name, prefix="")


def exit_by_signal(number: int | None) -> None:
    """Ends the command as the signal that ended its server wants it: 0 for SIGTERM, which is how a server is
    meant to be ended."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    if number == signal.SIGHUP:
        raise SystemExit(128 + number)


@contextmanager
def say_when_ended(describe: Callable[[], str]) -> Iterator[None]:
    """Ends with a message, such as how to continue, where Ctrl-C, SIGTERM or SIGHUP ends the block."""
    try:
        yield
    except (KeyboardInterrupt, Terminated) as error:
        print_error(describe(), prefix="")
        raise SystemExit(getattr(error, "code", INTERRUPTED)) from None

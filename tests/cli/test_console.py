"""What rich prints may be piped into `head`; a bar is drawn on a terminal alone, and makes way for texts."""

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pellucid.cli.console import Console, counting_bar

ROOT = Path(__file__).parent.parent.parent


def test_a_reader_that_has_left_is_reported_to_main() -> None:
    class Left(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        Console(file=Left()).print("text")


@pytest.mark.parametrize("path", sorted((ROOT / "pellucid" / "cli").glob("*.py")), ids=lambda path: path.name)
def test_no_command_has_another_console(path: Path) -> None:
    assert not re.search(r"rich\.console import .*\bConsole\b", path.read_text("utf-8"))


LIVE = """
from rich.live import Live
from pellucid.cli.console import Console
from pellucid.cli.terminal import safe_streams

with safe_streams():
    console = Console()
    with Live("[red]drawn[/red] a\\x1b]0;b", console=console, auto_refresh=False) as live:
        live.refresh()
        print("printed \\x1b]0;c")
"""


def test_a_live_display_draws_its_own_codes_and_escapes_the_text() -> None:
    """A live display puts a proxy before standard output: what it draws must pass that one too."""
    terminal, inner = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
    done = subprocess.Popen([sys.executable, "-c", LIVE], stdout=inner, stderr=inner, env=environment)
    os.close(inner)
    shown = b""
    while True:
        try:
            shown += os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
    os.close(terminal)
    assert done.wait() == 0
    assert b"\x1b[31mdrawn" in shown and b"\\x1b[31m" not in shown
    assert b"\x1b]0;" not in shown


def count_to(total: int) -> None:
    with counting_bar("prompts", total) as pause:
        for number in range(total):
            with pause():
                print(f"text {number}")


def test_elsewhere_than_on_a_terminal_there_is_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    count_to(3)
    assert capsys.readouterr() == ("text 0\ntext 1\ntext 2\n", "")


def test_on_a_terminal_the_bar_counts_and_what_is_printed_is_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    count_to(3)
    out, err = capsys.readouterr()
    assert out == "text 0\ntext 1\ntext 2\n" and "3/3" in err and "prompts" in err


def test_one_thing_alone_needs_no_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    count_to(1)
    assert capsys.readouterr() == ("text 0\n", "")

"""A command run in this process, as a person meets it: what it prints and its exit code."""

import io
import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from pellucid.cli import main


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


class Shell:
    def __init__(
        self, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch, home: Path = Path()
    ) -> None:
        self.capsys, self.patch, self.home = capsys, patch, home

    def __call__(self, *arguments: object, stdin: bytes = b"") -> Done:
        self.patch.setenv("NO_COLOR", "1")
        self.patch.setattr(sys, "argv", ["pellucid", *map(str, arguments)])
        self.patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        self.capsys.readouterr()
        before = signal.getsignal(signal.SIGINT)
        with pytest.raises(SystemExit) as exit:
            main()
        signal.signal(signal.SIGINT, before)  # the end of a command is the end of its process
        out, err = self.capsys.readouterr()
        assert "Traceback" not in err
        return Done(int(exit.value.code or 0), out, err)


def without_numbers(text: str) -> str:
    """Rounding differs from processor to processor; words do not."""
    return re.sub(r"-?\d[\d.,]*(e[-+]\d+)?", "#", text)

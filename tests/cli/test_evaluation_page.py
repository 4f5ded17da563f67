"""What docs/evaluation.md shows is what its commands print."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from pellucid.evaluation.windows import MAX_WINDOW
from tests.cli.commands import Shell

PAGE = (Path(__file__).parent.parent.parent / "docs" / "evaluation.md").read_text("utf-8")


def test_the_commands_of_the_page_print_what_it_shows(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    compared = 0
    for kind, block in re.findall(r"```(sh|text)\n(.*?)```", PAGE, re.DOTALL):
        if kind == "sh":
            subprocess.run(["sh", "-c", block], check=True)
            continue
        command, _, shown = block.partition("\n")
        assert shell(*shlex.split(command)[2:]).out == shown
        compared += 1
    assert compared >= 1


def test_the_page_names_the_bound_of_a_window() -> None:
    assert re.findall(r"<!-- window -->(\d+)<!-- /window -->", PAGE) == [str(MAX_WINDOW)]

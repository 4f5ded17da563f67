"""What docs/recorder.md shows is what its commands print."""

import re
import shlex
from pathlib import Path

from tests.cli.commands import Done, Shell, without_numbers

PAGE = (Path(__file__).parent.parent.parent / "docs" / "recorder.md").read_text("utf-8")
BLOCKS = re.findall(r"```(sh|text)\n(.*?)\n```", PAGE, re.DOTALL)


def test_the_commands_of_the_page_print_what_it_shows(shell: Shell) -> None:
    """Above 10 s on a busy machine: two short trainings and a replay."""
    done: dict[str, Done] = {}
    compared = 0
    for kind, block in BLOCKS:
        if kind == "sh":
            done["train"] = shell(*shlex.split(block.replace("\\\n", ""))[1:])
        elif block.startswith("$ pellucid explain"):
            command, _, shown = block.partition("\n")
            message = shell(*shlex.split(command)[2:]).out.rstrip("\n")
            arithmetic, _, notes = shown.partition("\n\n")
            assert message.partition("\n\n")[0] == arithmetic
            assert without_numbers(message.partition("\n\n")[2]) == without_numbers(notes)
            compared += 1
        else:
            assert done["train"].code == 1
            assert without_numbers(block) in without_numbers(done["train"].out)
            compared += 1
    assert compared == 2

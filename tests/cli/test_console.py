"""What rich prints may be piped into `head`: a reader that leaves is no failed check, in any command."""

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pellucid.cli.console import Console

ROOT = Path(__file__).parent.parent.parent


def test_a_reader_that_has_left_is_told_to_main() -> None:
    class Left(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        Console(file=Left()).print("text")


def test_a_list_cut_off_by_head_exits_with_0() -> None:
    command = f"{sys.executable} -m pellucid.cli choices | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "0" and done.stderr == ""


@pytest.mark.parametrize("path", sorted((ROOT / "pellucid" / "cli").glob("*.py")), ids=lambda path: path.name)
def test_no_command_has_another_console(path: Path) -> None:
    assert not re.search(r"rich\.console import .*\bConsole\b", path.read_text("utf-8"))

"""How much of the package one command enters: functions, files and modules, each with a limit.

A limit may only fall, or rise with a reason. A command runs twice in one process; counted are the functions
of the package that its second run enters at least once (`sys.setprofile`, all threads), their files, and the
modules of the package that are loaded by then.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import pellucid

PACKAGE = Path(pellucid.__file__).parent
SLACK = 0.05
"""The part by which a limit may be above what is measured: what falls further takes its limit along."""


class Flow(NamedTuple):
    """A command, and what it enters at most."""

    command: tuple[str, ...]
    functions: int
    files: int
    modules: int


FLOWS = {
    "explain": Flow(("explain", "abcd", "A B", "--at", "probs[1,2]"), 317, 56, 89),
    "generate": Flow(("generate", "abcd", "A B", "--max-new-tokens", "4"), 353, 66, 136),
    "train": Flow(("train", "task:copy", "steps=3", "out=run"), 826, 128, 226),
    "verify": Flow(("verify", "abcd", "--quick"), 1368, 198, 309),
}
PROGRAM = """
import contextlib, io, json, shutil, sys, threading
from pellucid.cli import main

def run():
    shutil.rmtree("run", ignore_errors=True)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        with contextlib.suppress(SystemExit):
            main()

package, sys.argv = sys.argv[1], ["pellucid", *sys.argv[2:]]
run()
entered = set()

def note(frame, event, argument):
    if event == "call" and frame.f_code.co_filename.startswith(package):
        entered.add((frame.f_code.co_filename, frame.f_code.co_qualname))

threading.setprofile(note)
sys.setprofile(note)
run()
sys.setprofile(None)
functions = {(file, name) for file, name in entered if not name.rpartition(".")[2].startswith("<")}
modules = [name for name in sys.modules if name.split(".")[0] == "pellucid"]
print(json.dumps([len(functions), len({file for file, _ in functions}), len(modules)]))
"""


def measure(command: tuple[str, ...], folder: Path) -> tuple[int, int, int]:
    """Returns the functions and files that a command enters, and the modules that it loads."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(PACKAGE), *command],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    functions, files, modules = json.loads(done.stdout)
    return functions, files, modules


@pytest.mark.parametrize("name", FLOWS)
def test_a_command_enters_no_more_than_its_limit(name: str, tmp_path: Path) -> None:
    """Above 10 s on a busy machine: `verify` runs every check twice, once under a profiler."""
    flow = FLOWS[name]
    for measured, limit in zip(measure(flow.command, tmp_path), flow[1:], strict=True):
        assert measured <= limit, f"{measured} of {flow}"
        assert measured >= (1 - SLACK) * limit, f"{measured}: lower the limit of {flow}"

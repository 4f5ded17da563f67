"""An explorer that runs: `pellucid explore … --no-browser` in a process of its own."""

import os
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.cli.fork_server import fork_server

ROOT = Path(__file__).parents[2]
ADDRESS = re.compile(r"http://\S+/explore/\S*")


@dataclass
class Served:
    """A server and the address that it printed: `http://127.0.0.1:PORT/explore/#key=…`."""

    process: "subprocess.Popen[str]"
    address: str

    @property
    def origin(self) -> str:
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def key(self) -> str:
        return self.address.partition("#key=")[2]

    def stop(self) -> None:
        """Ends the process as Ctrl-C does."""
        with suppress(ProcessLookupError):
            self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()


def environment() -> dict[str, str]:
    """Returns the environment of a command of this working tree, with one thread per process."""
    return os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def start(*arguments: str, folder: Path | None = None) -> Served:
    """Starts `pellucid explore ARGUMENTS` and returns it once it has printed its address."""
    command = [sys.executable, "-m", "pellucid.cli", "explore", *arguments, "--no-browser"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder, env=environment()
    )
    assert process.stdout
    printed = []
    for line in process.stdout:
        printed.append(line)
        if found := ADDRESS.search(line):
            return Served(process, found[0])
    process.wait()
    process.stdout.close()
    raise AssertionError(f"{' '.join(command)} ended without an address:\n{''.join(printed)}")


def export(file: Path, *arguments: str, folder: Path | None = None) -> Path:
    """Writes an exported page and returns its path."""
    done = fork_server().run(["explore", *arguments, "--export", str(file)], folder or file.parent)
    assert done.code == 0, done.text
    return file

"""`pellucid explore` as a person meets it: the address, the page, and every way to end."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import pellucid
from tests.cli.commands import Shell

COMMAND = [sys.executable, "-P", "-m", "pellucid.cli", "explore"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


@dataclass
class Explorer:
    """The command in a process of its own, and what it printed."""

    process: "subprocess.Popen[str]"
    port: int
    key: str

    def ask(self, path: str, key: str | None = None, body: object = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Authorization": f"Bearer {key or self.key}", "Content-Type": "application/json"}
        with contextlib.closing(connection):
            if body is None:
                connection.request("GET", path, headers=headers)
            else:
                connection.request("POST", path, json.dumps(body), headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def find_children(self) -> list[int]:
        task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in task.read_text().split()]


@contextlib.contextmanager
def run_explorers(*lines: list[str]) -> Iterator[list[Explorer]]:
    """Yields a running command for each line of arguments; they start at the same time."""
    processes = [
        subprocess.Popen(
            [*COMMAND, *line, "--no-browser"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        for line in lines
    ]
    try:
        yield list(map(read_address, processes))
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def read_address(process: "subprocess.Popen[str]") -> Explorer:
    assert process.stdout
    line = process.stdout.readline()
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/explore/#key=([\w-]{32})\n", line)
    assert found, process.communicate()
    return Explorer(process, int(found[1]), found[2])


def is_running(pid: int) -> bool:
    """A zombie, which has ended and is not waited for, does not run."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until_ended(pids: list[int]) -> None:
    deadline = time.monotonic() + 5
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline, pids
        time.sleep(0.01)


def test_explorers_at_once_answer_and_end() -> None:
    """Each has its own port and key; a worker that was killed is started again by the next question; a
    command that was killed leaves no process."""
    with run_explorers(["abcd", "A B"], ["abcd"], ["abcd"]) as (first, second, third):
        assert first.port != second.port and first.key != second.key
        assert first.ask("/api/session", second.key)[0] == 401
        assert first.ask("/explore/")[0] == 200
        status, body = first.ask("/api/next?count=1")
        assert (status, json.loads(body)["tokens"][0]["label"]) == (200, "B")
        assert second.ask("/api/next")[0] == 400
        assert second.ask("/api/run", body={"prompt": "A B", "target": "C"})[0] == 200
        assert second.ask("/api/next?count=1&t=1")[0] == 200

        [worker] = first.find_children()
        os.kill(worker, signal.SIGKILL)
        wait_until_ended([worker])
        status, body = first.ask("/api/next")
        assert status in (400, 500) and json.loads(body)["error"]["message"]
        assert first.ask("/api/run", body={"prompt": "A B"})[0] == 200
        assert first.ask("/api/next")[0] == 200

        children = [child for one in (first, second, third) for child in one.find_children()]
        assert len(children) == 3
        for one, number, code in (
            (first, signal.SIGINT, 130),
            (second, signal.SIGTERM, 0),
            (third, signal.SIGKILL, -9),
        ):
            one.process.send_signal(number)
            assert one.process.wait(10) == code
        wait_until_ended(children)
        assert first.process.stderr and second.process.stderr
        assert "Traceback" not in first.process.stderr.read() + second.process.stderr.read()


def test_an_export_needs_no_package_of_a_server(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.setitem(sys.modules, "starlette", None)
    page = tmp_path / "page.html"
    assert shell("explore", "abcd", "A B", "--export", page, "--size", "200kB").code == 0
    assert page.stat().st_size <= 200_000
    again = shell("explore", "abcd", "A B", "--export", page)
    assert again.code == 2 and "--force" in again.err
    assert shell("explore", "abcd", "A B", "--target", "C", "--export", page, "--force").code == 0
    assert page.stat().st_size > 200_000


def test_weights_are_held_as_asked(shell: Shell, tmp_path: Path) -> None:
    page, given = tmp_path / "page.html", ("--weights", "int8", "--size", "200kB")
    assert shell("explore", "abcd", "A B", "--export", page, *given).code == 0
    probability = pellucid.load("abcd", weights="int8").trace("A B").value("probs")[0, 1].max()
    assert repr(float(probability)) in page.read_text("utf-8")

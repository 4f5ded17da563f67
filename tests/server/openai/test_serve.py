"""The life of a server: it listens while the model loads, ends by signals, and leaves no process behind."""

import contextlib
import http.client
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pellucid.base.errors import FileError, PellucidError, ResourceError, UsageError
from pellucid.generation.answers.lines import EngineReady
from pellucid.server import openai
from pellucid.server.http.address import bind, get_port
from pellucid.server.openai.serve import check_engine_names, serve
from pellucid.server.openai.worker.client import MODULE
from tests.server.served import STAND_IN, Served, run_served
from tests.server.serving import Answer

OPTIONS: dict[str, Any] = {
    "host": "127.0.0.1",
    "port": 0,
    "key": None,
    "name": "any",
    "allow_hosts": (),
    "slots": 4,
    "queue": 2,
    "dtype": "float32",
    "device": "cpu",
    "cache": None,
    "say": lambda text: None,
}


@contextlib.contextmanager
def run_command(model: str | Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Runs a server in a process of its own with a stand-in engine; gives it and its address."""
    arguments = (sys.executable, "-m", STAND_IN, str(model), "0")
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            yield process, next((word for word in first.split() if word.startswith("http")), "")
        finally:
            process.kill()


def ask(address: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(address, timeout=10) as found:
            return found.status, json.load(found)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def wait_until(is_so: Callable[[], bool], seconds: float = 10) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


def find_children(parent: int) -> list[int]:
    """Returns the processes that a process has started."""
    return [int(word) for word in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def has_ended(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


def test_running_answers_are_given_after_the_signal_and_no_engine_outlives_its_server(
    tmp_path: Path, tiny_model: Path
) -> None:
    """Two servers at once: one ends by SIGTERM in the middle of a stream, the other is killed."""
    slow = shutil.copytree(tiny_model, tmp_path / "slow")
    with run_command(slow) as (process, address), run_command(slow) as (killed, other_address):
        for asked in (address, other_address):
            wait_until(lambda asked=asked: ask(asked)[0] == 200)  # type: ignore[misc]
        engines = [*find_children(process.pid), *find_children(killed.pid)]
        assert len(engines) == 2
        killed.kill()
        host, _, port = address.removeprefix("http://").removesuffix("/health").partition(":")
        connection, other = (http.client.HTTPConnection(host, int(port), timeout=10) for _ in range(2))
        body = json.dumps({"prompt": [0], "max_tokens": 12, "stream": True})
        with contextlib.closing(connection), contextlib.closing(other):
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            stream = connection.getresponse()
            assert stream.readline().startswith(b"data: ")
            process.send_signal(signal.SIGTERM)
            wait_until(lambda: ask(address) == (503, {"status": "ending"}))
            other.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            refused = other.getresponse()
            assert refused.status == 503 and refused.headers["Retry-After"] == "10"
            events = [line for line in stream.read().splitlines() if line]
            assert len(events) >= 11 and events[-1] == b"data: [DONE]"
        assert process.wait(5) == 0
        said, errors = process.communicate()
        assert "4 slots of 512 tokens" in said and "curl http" in said and not errors
        wait_until(lambda: all(map(has_ended, engines)), 2)


def test_a_model_that_loads_is_reported_and_a_signal_ends_it(tmp_path: Path, tiny_model: Path) -> None:
    with run_command(shutil.copytree(tiny_model, tmp_path / "loads")) as (process, address):
        assert ask(address) == (503, {"status": "loading"})
        wait_until(lambda: bool(find_children(process.pid)))
        (engine,) = find_children(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 0 and process.communicate() == ("", "")
        wait_until(lambda: has_ended(engine), 2)


def test_a_model_that_does_not_load_ends_the_server_with_the_reason(tmp_path: Path, tiny_model: Path) -> None:
    fails = shutil.copytree(tiny_model, tmp_path / "fails")
    with pytest.raises(FileError, match="damaged"), run_served(fails, module=STAND_IN):
        pass


def test_a_port_in_use_and_a_model_that_is_none_are_found_before_anything_starts() -> None:
    with bind(0) as listening, pytest.raises(UsageError, match="in use"):
        serve("no such model", **OPTIONS | {"port": get_port(listening)})
    with pytest.raises(PellucidError, match="no such model"):
        serve("no such model", **OPTIONS)
    with pytest.raises(UsageError, match="needs a key"):
        serve("abcd", **OPTIONS | {"host": "0.0.0.0"})


@pytest.mark.parametrize(("hosts", "is_said"), [((), True), (("models.example.org",), False)])
def test_a_server_for_other_machines_says_what_they_still_need(
    monkeypatch: pytest.MonkeyPatch, hosts: tuple[str, ...], is_said: bool
) -> None:
    async def load_at_once(*given: Any) -> None:
        given[-1](EngineReady(4, 512, 4096))

    monkeypatch.setattr("pellucid.server.openai.serve.run_until_signal", load_at_once)
    said: list[str] = []
    options = {"host": "0.0.0.0", "key": "k" * 16, "allow_hosts": hosts, "say": said.append}
    serve("abcd", **(OPTIONS | options))
    assert ("--allow-host" in " ".join(said)) == is_said and "k" * 16 not in " ".join(said)


def read_events(served: Served, begun: list[Any], **body: Any) -> tuple[list[Any], float]:
    """Returns the events of a streamed answer, and when the last one came; `begun` gets the first one."""
    events = served.stream("/v1/completions", prompt=[0], **body)
    begun.append(next(events))
    return list(events), time.monotonic()


def ask_whole(served: Served, **body: Any) -> tuple[Answer, float]:
    return served.ask("POST", "/v1/completions", {"prompt": [0], **body}), time.monotonic()


@pytest.mark.parametrize(
    ("module", "model", "count"),
    [(STAND_IN, "tiny_model", 100), pytest.param(MODULE, "small_model", 500, marks=pytest.mark.torture)],
)
def test_a_killed_engine_ends_every_answer_with_an_error_and_is_started_again_once_an_hour(
    tmp_path: Path, request: pytest.FixtureRequest, module: str, model: str, count: int
) -> None:
    """Kill −9 in the middle of five streams, a whole answer and one that waits; then once more, which ends
    the server: its last answers are errors, and a service manager sees exit code 3."""
    slow = shutil.copytree(request.getfixturevalue(model), tmp_path / "slow")
    many = {"max_tokens": count, "min_new_tokens": count}
    with (  # noqa: PT012
        pytest.raises(ResourceError, match="second time within an hour") as given_up,
        run_served(slow, module=module, slots=6) as served,
        ThreadPoolExecutor(8) as pool,
    ):
        begun = list[Any]()
        asked = [pool.submit(read_events, served, begun, **many) for _ in range(5)]
        wait_until(lambda: len(begun) == 5)
        whole, waiting = (pool.submit(ask_whole, served, **many) for _ in range(2))
        wait_until(lambda: served.engine.in_flight == 7)
        assert served.engine.pid is not None
        os.kill(served.engine.pid, signal.SIGKILL)
        killed_at = time.monotonic()
        for future in asked:
            events, ended_at = future.result()
            assert events[-1]["error"]["type"] == "server_error" and "[DONE]" not in events
            assert ended_at - killed_at < 5
        for answered in (whole, waiting):
            answer, ended_at = answered.result()
            assert answer.status == 503 and "retry-after" in answer.headers
            assert ended_at - killed_at < 5
        wait_until(lambda: served.engine.state == "ready")
        assert served.ask("GET", "/health").status == 200
        assert read_events(served, [], max_tokens=3)[0][-1] == "[DONE]"
        begun.clear()
        last = pool.submit(read_events, served, begun, **many)
        wait_until(lambda: len(begun) == 1)
        os.kill(served.engine.pid, signal.SIGKILL)
        assert last.result()[0][-1]["error"]["type"] == "server_error"
        wait_until(lambda: served.app.is_ending)
    assert given_up.value.exit_code == 3


@pytest.mark.parametrize(
    "names", [("GPU", "float32", None), ("cpu", "float99", None), ("cpu", "float32", "x")]
)
def test_a_name_of_no_device_or_dtype_is_refused_before_anything_is_loaded(
    names: tuple[str, str, str | None],
) -> None:
    with pytest.raises(PellucidError):
        check_engine_names(*names)
    check_engine_names("cuda:1", "bfloat16", "int8")


def test_missing_packages_are_named_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("starlette", "uvicorn"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=r"starlette and uvicorn: pip install 'pellucid\[serve\]'"):
        importlib.reload(openai)

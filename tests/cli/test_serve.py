"""`pellucid serve` as a person meets it: one message for each mistake, a server that answers, and its end."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pellucid.server.http.address import bind, get_port
from pellucid.server.http.key_file import VARIABLE
from pellucid.server.openai import serve as serving
from tests.cli.commands import Shell
from tests.cli.test_explore import COMMAND, ENVIRONMENT, wait_until_ended
from tests.server.served import save_model

KEY = "a-key-of-a-test-0123456789"


@pytest.fixture
def shell(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """In a folder with a key file, one that others can read, and one whose key is too short."""
    monkeypatch.delenv(VARIABLE, raising=False)
    for name, text, mode in (("key", KEY, 0o600), ("open", KEY, 0o644), ("short", KEY[:15], 0o600)):
        Path(name).write_text(text)
        Path(name).chmod(mode)
    return shell


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command gives to `serve`, which serves nothing."""
    found: dict[str, Any] = {}

    def serve(model: str, **options: Any) -> None:
        found.update(options, model=model)

    monkeypatch.setattr(serving, "serve", serve)
    return found


# ---- mistakes


@pytest.mark.parametrize("key", ["", "short", KEY[:15], f"{KEY} {KEY}", f"{KEY}\n"])
def test_a_key_of_the_environment_that_is_not_one_is_one_message(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """An empty one is not the wish to have none."""
    monkeypatch.setenv(VARIABLE, key)
    done = shell("serve", "abcd", "--port", "0")
    assert (done.code, done.out) == (2, "") and VARIABLE in done.err and KEY[:15] not in done.err


@pytest.mark.parametrize("command", ["serve", "explore"])
def test_a_port_in_use_and_a_missing_extra_are_one_message(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    with bind(0) as taken:
        port = str(get_port(taken))
        done = shell(command, "abcd", "--port", port)
        assert (done.code, done.out) == (2, "") and port in done.err and "--port" in done.err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name in [name for name in sys.modules if name.startswith("pellucid.server.openai")]:
        monkeypatch.delitem(sys.modules, name)  # the extra is asked for when they are imported
    done = shell(command, "abcd")
    assert (done.code, done.out) == (2, "") and "pip install 'pellucid[serve]'" in done.err


# ---- options


def test_without_options_this_machine_alone_is_served_without_a_key(
    shell: Shell, given: dict[str, Any]
) -> None:
    assert shell("serve", "abcd").code == 0
    wanted = {"host": "127.0.0.1", "port": 8000, "key": None, "name": "abcd", "slots": None, "queue": 256}
    assert wanted.items() <= given.items() and not given["allow_hosts"]
    assert (given["dtype"], given["device"], given["cache"]) == ("float32", "cpu", None)


def test_every_option_arrives(shell: Shell, given: dict[str, Any]) -> None:
    line = (
        "models/a.gguf --host 0.0.0.0 --port 9 --api-key-file key --name me/it --allow-host a --allow-host b "
        "--slots 2 --queue 0 --dtype bfloat16 --device cuda --cache int8"
    )
    assert shell("serve", *line.split()).code == 0
    wanted = {"model": "models/a.gguf", "host": "0.0.0.0", "port": 9, "key": KEY, "name": "me/it"}
    wanted |= {"slots": 2, "queue": 0, "dtype": "bfloat16", "device": "cuda", "cache": "int8"}
    assert wanted.items() <= given.items() and given["allow_hosts"] == ["a", "b"]


def test_a_file_goes_before_the_environment_and_no_process_inherits_the_key(
    shell: Shell, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "k" * 16)
    assert shell("serve", "abcd").code == 0 and given["key"] == "k" * 16 and VARIABLE not in os.environ
    monkeypatch.setenv(VARIABLE, "k" * 16)
    assert shell("serve", "abcd", "--api-key-file", "key").code == 0 and given["key"] == KEY


@pytest.mark.parametrize("module", ["openai.serve.serve", "explorer.serve.explore"])
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0), (signal.SIGHUP, 129), (None, 0)]
)
def test_the_exit_code_says_which_signal_ended_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, module: str, number: int | None, code: int
) -> None:
    monkeypatch.setattr(f"pellucid.server.{module}", lambda *arguments, **options: number)
    assert shell(module.rpartition(".")[2], "abcd").code == code


# ---- a server


@dataclass
class Server:
    """The command in a process of its own."""

    process: "subprocess.Popen[str]"
    port: int

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        data = None if body is None else json.dumps(body)
        with contextlib.closing(connection):
            connection.request(method, path, data, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def find_children(self) -> list[int]:
        task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in task.read_text().split()]


@contextlib.contextmanager
def run_command(*arguments: str, **variables: str) -> Iterator[Server]:
    """Yields the running command, with further environment variables, when it has printed its address."""
    with subprocess.Popen(
        [*COMMAND[:-1], "serve", *arguments, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT | variables,
    ) as process:
        try:
            assert process.stdout
            found = re.search(r"http://127\.0\.0\.1:(\d+)/", process.stdout.readline())
            assert found, process.communicate()
            yield Server(process, int(found[1]))
        finally:
            process.kill()


def test_a_server_answers_who_has_the_key_shows_it_nowhere_and_ends(tmp_path: Path) -> None:
    """Also where the reader of its output has left before it ends."""
    model, asked = str(save_model(tmp_path / "tiny")), {"prompt": "the", "max_tokens": 3, "temperature": 0}
    options = ("--name", "org/tiny", "--allow-host", "tiny.example", "--slots", "2")
    with run_command(model, *options, **{VARIABLE: KEY}) as server:
        process = server.process
        assert process.stdout and process.stderr
        shown = process.stdout.readline() + process.stdout.readline()
        assert "org/tiny" in shown and "curl " in shown and f"${VARIABLE}" in shown
        process.stdout.close()

        status, answer = server.ask("POST", "/v1/completions", asked, Authorization=f"Bearer {KEY}")
        assert (status, answer["model"], answer["usage"]["completion_tokens"]) == (200, "org/tiny", 3)
        status, answer = server.ask("POST", "/v1/completions", asked)
        assert status == 401 and "Authorization: Bearer KEY" in answer["error"]["message"]
        assert server.ask("GET", "/health", Host="tiny.example")[0] == 200
        assert server.ask("GET", "/health", Host="other.example")[0] == 400

        [engine] = server.find_children()
        for pid in (process.pid, engine):
            assert KEY not in Path(f"/proc/{pid}/cmdline").read_text()
        assert KEY not in Path(f"/proc/{engine}/environ").read_text()
        assert "libtorch" not in Path(f"/proc/{process.pid}/maps").read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        wait_until_ended([engine])
        errors = process.stderr.read()
        assert KEY not in shown + errors and "Traceback" not in errors

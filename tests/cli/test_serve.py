"""`pellucid serve` as a person meets it: one message for each mistake, a server that answers, and its end."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pellucid.server import serve as serving
from pellucid.server.bind import bind, get_port
from pellucid.server.key_file import VARIABLE
from tests.cli.commands import Shell
from tests.cli.test_explore import COMMAND, ENVIRONMENT, wait_until_ended
from tests.server.served import save_model

KEY = "a-key-of-a-test-0123456789"


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shell:
    """In a folder with a key file, one that others can read, and one whose key is too short."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)
    for name, text, mode in (("key", KEY, 0o600), ("open", KEY, 0o644), ("short", KEY[:15], 0o600)):
        Path(name).write_text(text)
        Path(name).chmod(mode)
    return Shell(capsys, monkeypatch)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command gives to `serve`, which serves nothing."""
    found: dict[str, Any] = {}

    def serve(model: str, **options: Any) -> None:
        found.update(options, model=model)

    monkeypatch.setattr(serving, "serve", serve)
    return found


# ---- mistakes


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (("abcd", "--host", "0.0.0.0"), "--api-key-file"),
        (("abcd", "--host", "::"), "--api-key-file"),
        (("abcd", "--host", "0"), "0.0.0.0"),
        (("abcd", "--host", "192.0.2.7"), "--api-key-file"),
        (("abcd", "--host", "192.0.2.7", "--api-key-file", "key"), "192.0.2.7"),
        (("abcd", "--host", ""), "--host"),
        (("abcd", "--host", "example.org"), "--host"),
        (("abcd", "--api-key-file", "none"), "none"),
        (("abcd", "--api-key-file", "."), "regular file"),
        (("abcd", "--api-key-file", "open"), "chmod 600"),
        (("abcd", "--api-key-file", "short"), "16"),
        (("abcd", "--allow-host", "*"), "--allow-host"),
        (("abcd", "--allow-host", "https://example.org"), "--allow-host"),
        (("abcd", "--name", "a b"), "--name"),
        (("abcd", "--name", ""), "--name"),
        (("abcd", "--port", "65536"), "--port"),
        (("abcd", "--port", "-1"), "--port"),
        (("abcd", "--slots", "0"), "--slots"),
        (("abcd", "--slots", "4097"), "--slots"),
        (("abcd", "--queue", "-1"), "--queue"),
        (("abcd", "--queue", "65537"), "--queue"),
        (("nothing",), "nothing"),
        (("gpt2",), "weights"),
        ((), "MODEL"),
    ],
    ids=str,
)
def test_a_mistake_is_one_message(shell: Shell, arguments: tuple[str, ...], fact: str) -> None:
    more = () if "--port" in arguments else ("--port", "0")
    done = shell("serve", *arguments, *more)
    assert (done.code, done.out) == (2, "") and done.err.startswith("pellucid: ")
    assert fact in done.err and KEY[:15] not in done.err


@pytest.mark.parametrize("key", ["", "short", KEY[:15], f"{KEY} {KEY}", f"{KEY}\n"])
def test_a_key_of_the_environment_that_is_not_one_is_one_message(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """An empty one is not the wish to have none."""
    monkeypatch.setenv(VARIABLE, key)
    done = shell("serve", "abcd", "--port", "0")
    assert (done.code, done.out) == (2, "") and VARIABLE in done.err and KEY[:15] not in done.err


def test_a_port_in_use_and_a_missing_extra_are_one_message(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bind(0) as taken:
        port = str(get_port(taken))
        done = shell("serve", "abcd", "--port", port)
        assert (done.code, done.out) == (2, "") and port in done.err and "--port" in done.err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = shell("serve", "abcd")
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


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0), (signal.SIGHUP, 129), (None, 0)]
)
def test_the_exit_code_says_which_signal_ended_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, number: int | None, code: int
) -> None:
    monkeypatch.setattr(serving, "serve", lambda *arguments, **options: number)
    assert shell("serve", "abcd").code == code


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
def run_commands(*lines: tuple[list[str], dict[str, str]]) -> Iterator[list[Server]]:
    """Yields a running command for each line of arguments and further environment variables."""
    processes = [
        subprocess.Popen(
            [*COMMAND[:-1], "serve", *line, "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT | more,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        for line, more in lines
    ]
    try:
        servers = []
        for process in processes:
            assert process.stdout
            found = re.search(r"http://127\.0\.0\.1:(\d+)/", process.stdout.readline())
            assert found, process.communicate()
            servers.append(Server(process, int(found[1])))
        yield servers
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_servers_answer_who_has_the_key_and_end(tmp_path: Path) -> None:
    """Two at once: one has its key from a file, and one from the environment, whose output is closed."""
    model = save_model(tmp_path / "tiny")
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "key").chmod(0o600)
    named = ["--api-key-file", str(tmp_path / "key"), "--name", "org/tiny", "--allow-host", "tiny.example"]
    right, asked = {"Authorization": f"Bearer {KEY}"}, {"prompt": "the", "max_tokens": 3}
    lines = ([str(model), *named], {}), ([str(model)], {VARIABLE: KEY})
    with run_commands(*lines) as (first, second):
        assert first.process.stdout and first.process.stderr and second.process.stdout
        shown = first.process.stdout.readline() + first.process.stdout.readline()
        second.process.stdout.readline()
        second.process.stdout.close()  # as `head -2` does
        assert "org/tiny" in shown and "curl " in shown
        status, answer = first.ask("POST", "/v1/completions", asked, **right)
        assert (status, answer["model"], answer["usage"]["completion_tokens"]) == (200, "org/tiny", 3)
        assert second.ask("POST", "/v1/completions", asked, **right)[1]["model"] == "tiny"
        for one in (first, second):
            status, answer = one.ask("POST", "/v1/completions", asked)
            assert status == 401 and "Authorization: Bearer KEY" in answer["error"]["message"]
            assert one.ask("GET", "/health")[0] == 200
        assert first.ask("GET", "/health", Host="tiny.example")[0] == 200
        assert second.ask("GET", "/health", Host="tiny.example")[0] == 400

        children = [*first.find_children(), *second.find_children()]
        assert len(children) == 2
        for pid in (first.process.pid, second.process.pid, *children):
            assert KEY not in Path(f"/proc/{pid}/cmdline").read_text()
        for pid in children:
            assert KEY not in Path(f"/proc/{pid}/environ").read_text()
        for one in (first, second):
            assert "libtorch" not in Path(f"/proc/{one.process.pid}/maps").read_text()
        for one, number, code in ((first, signal.SIGTERM, 0), (second, signal.SIGINT, 130)):
            one.process.send_signal(number)
            assert one.process.wait(10) == code
        wait_until_ended(children)
        shown += first.process.stdout.read() + first.process.stderr.read()
        assert second.process.stderr
        assert KEY not in shown + second.process.stderr.read() and "Traceback" not in shown

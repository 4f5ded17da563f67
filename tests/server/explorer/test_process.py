"""The explorer's process answers every question, and ends with its input."""

import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from pellucid.base.worker import read_ready
from pellucid.server.explorer import list_questions
from pellucid.server.explorer.held_trace import RunRequest
from pellucid.server.explorer.process import (
    MOST_ANSWER,
    MOST_RUNS,
    QuestionLine,
    QuestionWorker,
    answer_line,
    format_line,
)
from pellucid.server.explorer.session import Session
from tests.base.test_worker import is_running


class Lines:
    """Collects lines out; `wait(n)` returns the first n of them by id."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.changed = threading.Condition()

    def write(self, line: bytes) -> None:
        with self.changed:
            self.lines.append(line)
            self.changed.notify_all()

    def wait(self, count: int) -> dict[int, tuple[int, Any]]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.lines) >= count, 10)
            return {id: (status, body) for id, status, body in map(split, self.lines)}


def split(line: bytes) -> tuple[int, int, Any]:
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    id, status, body = line.split(b" ", 2)
    return int(id), int(status), json.loads(body)


def make_line(id: int, question: str, is_text: bool = False, **parameters: Any) -> bytes:
    asked = {"id": id, "question": question, "parameters": parameters, "is_text": is_text}
    return json.dumps(asked).encode() + b"\n"


@pytest.fixture(scope="module")
def session() -> Session:
    session = Session.open("abcd")
    session.run(RunRequest("A B"))
    return session


# ---- lines


def parse_line(line: bytes) -> QuestionLine:
    return QuestionLine(**json.loads(line))


def test_an_answer_is_that_of_the_session(session: Session) -> None:
    asked = parse_line(make_line(7, "next", count=2))
    assert split(answer_line(session, asked)) == (7, 200, session.ask("next", count=2))


def test_a_text_from_a_url_is_read(session: Session) -> None:
    asked = parse_line(make_line(7, "next", is_text=True, count="2"))
    assert split(answer_line(session, asked)) == (7, 200, session.ask("next", count=2))


def test_an_error_has_its_status(session: Session) -> None:
    for status, asked in {
        400: make_line(1, "next", count=1000),
        404: make_line(1, "nxt"),
    }.items():
        found = split(answer_line(session, parse_line(asked)))
        assert found[1] == status and set(found[2]["error"]) == {"message"}


def test_a_line_has_only_what_json_has() -> None:
    assert split(format_line(1, 200, {"a": "\ud800\u2028\n", "b": "é"}))[2] == {
        "a": "\ud800\u2028\n",
        "b": "é",
    }
    with pytest.raises(ValueError):
        format_line(1, 200, {"a": float("nan")})


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise KeyError("a\nb")

    monkeypatch.setattr("pellucid.server.explorer.question.ask", fail)


@pytest.mark.usefixtures("broken")
def test_an_unexpected_error_is_one_line(
    session: Session, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, status, body = split(answer_line(session, parse_line(make_line(1, "next"))))
    assert status == 500 and "KeyError" in body["error"]["message"] and "\n" not in body["error"]["message"]
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("PELLUCID_DEBUG", "1")
    answer_line(session, parse_line(make_line(1, "next")))
    assert "Traceback" in capsys.readouterr().err


def test_an_answer_that_is_too_long_is_an_error(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.server.explorer.question.ask", lambda *_: {"a": "x" * MOST_ANSWER})
    _, status, body = split(answer_line(session, parse_line(make_line(1, "next"))))
    assert status == 500 and f"{MOST_ANSWER:,}" in body["error"]["message"]


# ---- runs


def test_runs_wait_for_each_other_and_questions_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    session, lines = Session.open("abcd"), Lines()
    session.run(RunRequest("A B"))
    begun, end, real = threading.Event(), threading.Event(), Session._trace

    def slow(*arguments: Any) -> Any:
        begun.set()
        assert end.wait(10)
        return real(*arguments)

    monkeypatch.setattr(Session, "_trace", slow)
    worker = QuestionWorker(session, lines.write)
    worker.receive(make_line(1, "run", prompt="A"))
    assert begun.wait(10)
    for id in range(2, 2 + MOST_RUNS):
        worker.receive(make_line(id, "run", prompt="B"))
    worker.receive(make_line(90, "run", prompt="C"))
    assert lines.wait(1)[90][0] == 503
    worker.receive(make_line(91, "session"))
    status, found = lines.wait(2)[91]
    assert status == 200 and found["busy"]["tokens"] == [{"label": "A", "id": 0}]
    end.set()
    answers = lines.wait(3 + MOST_RUNS)
    assert [answers[id] for id in range(1, 2 + MOST_RUNS)] == [
        (200, {"trace": f"t{id}"}) for id in range(2, 3 + MOST_RUNS)
    ]


def test_a_dropped_trace_is_computed_again_beside_other_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    import pellucid

    session, lines = Session(pellucid.load("abcd"), most_traces=1), Lines()
    session.run(RunRequest("A B"))
    wanted = session.ask("next")
    session.run(RunRequest("C"))
    end, real = threading.Event(), Session._trace

    def slow(*arguments: Any) -> Any:
        assert end.wait(10)
        return real(*arguments)

    monkeypatch.setattr(Session, "_trace", slow)
    worker = QuestionWorker(session, lines.write)
    worker.receive(make_line(1, "next", trace="t1"))
    worker.receive(make_line(2, "next", trace="t2"))
    assert set(lines.wait(1)) == {2}
    del session.traces["t2"]
    worker.receive(make_line(3, "session"))  # it is about no trace, whichever is held
    worker.receive(make_line(4, "heads"))
    assert set(lines.wait(2)) == {2, 3}
    end.set()
    assert lines.wait(4)[1] == (200, wanted)


# ---- the process itself


COMMAND = [sys.executable, "-P", "-m", "pellucid.server.explorer.process"]


def test_the_process_says_what_it_can_be_asked_and_ends_with_its_input() -> None:
    process = subprocess.Popen([*COMMAND, "abcd"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    out, _ = process.communicate(make_line(3, "run", prompt="A B"), timeout=60)
    assert list(read_ready(out.splitlines()[0])) == list_questions()
    assert process.returncode == 0


def test_the_process_imports_no_torch_and_says_why_a_source_cannot_be_opened() -> None:
    script = (
        "import sys; from pellucid.server.explorer.process import main; main('gpt2'); main('abcd\\0'); "
        "from pellucid.server.explorer.session import Session; "
        "from pellucid.server.explorer.held_trace import RunRequest; "
        "s = Session.open('abcd'); s.run(RunRequest('A B')); "
        "s.ask('session'); s.ask('names'); s.ask('next'); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        assert set(json.loads(line)["failed"]) == {"message", "kind"}


def test_the_process_ends_when_its_parent_is_killed() -> None:
    parent = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen({[*COMMAND, 'abcd']!r}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); print(child.pid, flush=True); time.sleep(60)"
    )
    killed = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE)
    assert killed.stdout is not None
    with killed.stdout:
        child = int(killed.stdout.readline())
    killed.kill()
    killed.wait()
    for _ in range(100):
        if not is_running(child):
            return
        time.sleep(0.05)
    os.kill(child, 9)
    raise AssertionError("the process outlives its parent")

"""Workers: what they answer, how they end, and an end with their parent."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pellucid
from pellucid.base.errors import FileError
from pellucid.base.worker import (
    FORGET_SECONDS,
    RestartLimit,
    Worker,
    describe_failure,
    make_environment,
    read_ready,
    run_program,
)

ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"


def read_line(stdout: io.BufferedIOBase) -> bytes:
    if not (line := stdout.readline()):
        raise EOFError
    return line


def test_requests_are_answered_one_after_another() -> None:
    with Worker("-c", ECHO) as worker:
        assert [worker.ask(line, read_line) for line in (b"a\n", b"b\n")] == [b"a\n", b"b\n"]
        assert os.getpgid(worker.process.pid) != os.getpgid(0), "Ctrl-C at a terminal does not reach it"
    assert not worker.is_alive


def test_the_end_of_a_process_is_the_end_of_its_requests() -> None:
    with Worker("-c", "import sys; sys.exit(3)") as worker:
        with pytest.raises(EOFError):
            worker.ask(b"x" * 2**20, read_line)
        assert worker.process.wait() == 3


def test_a_process_that_takes_too_long_is_ended() -> None:
    with Worker("-c", "import time; time.sleep(60)") as worker:
        with pytest.raises(EOFError):
            worker.ask(b"a\n", read_line, seconds=0.1)
        assert worker.process.wait() == -signal.SIGKILL


def test_an_interrupted_request_ends_the_process_and_an_error_of_its_reader_does_not() -> None:
    def fail(error: BaseException) -> None:
        raise error

    with Worker("-c", ECHO) as worker:
        with pytest.raises(ValueError):
            worker.ask(b"a\n", lambda stdout: fail(ValueError()))
        assert worker.is_alive
        with pytest.raises(KeyboardInterrupt):
            worker.ask(b"a\n", lambda stdout: fail(KeyboardInterrupt()))
        assert not worker.is_alive


def test_what_a_process_started_ends_with_it() -> None:
    program = "import os, time; child = os.fork(); child and print(child, flush=True); time.sleep(60)"
    with Worker("-c", program) as worker:
        child = int(worker.ask(b"", read_line))
        os.kill(child, 0)
    deadline = time.monotonic() + 5
    while is_running(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Returns whether a process exists and is not a zombie that waits for its new parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_process_finds_this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "4")
    found, root = make_environment({"OPENBLAS_NUM_THREADS": "1"}), str(Path(pellucid.__file__).parents[1])
    assert found["OPENBLAS_NUM_THREADS"] == "1"
    assert found["PYTHONPATH"].split(os.pathsep) == [root, "/elsewhere"]
    monkeypatch.setattr(pellucid, "__file__", "/usr/lib/site-packages/pellucid/__init__.py")
    assert make_environment()["PYTHONPATH"] == "/elsewhere"


# ---- a program that is run to its end


def test_the_exit_code_and_all_output_come_back() -> None:
    said = "print(sys.argv[1], flush=True); print('x' * 200_000, file=sys.stderr); sys.exit(3)"
    code, output = run_program(said, ["first"], {}, lambda: None)
    assert code == 3 and output == "first\n" + "x" * 200_000 + "\n"


def test_a_signal_that_ended_it_is_a_negative_code() -> None:
    assert run_program("os.kill(os.getpid(), signal.SIGSEGV)", [], {}, lambda: None)[0] == -signal.SIGSEGV


def test_it_ends_where_waiting_for_it_fails() -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_program("import time; time.sleep(60)", [], {}, fail)


# ---- its first line, and how often it is started again


def test_an_error_crosses_the_line_with_its_class() -> None:
    with pytest.raises(FileError, match="not there"):
        read_ready(describe_failure(FileError("it is not there.")))


def test_a_restart_is_forgotten_after_an_hour() -> None:
    now = 0.0
    limit = RestartLimit(2, lambda: now)
    assert [limit.allow() for _ in range(3)] == [True, True, False]
    now = FORGET_SECONDS - 1
    assert not limit.allow()
    for hour in range(1, 10):
        now = hour * FORGET_SECONDS
        assert [limit.allow() for _ in range(3)] == [True, True, False]


def test_nothing_that_a_library_prints_comes_between_two_lines() -> None:
    code = """
from pellucid.base.worker import open_output
write = open_output()
write(b"a\\n")
print("noise", flush=True)
write(b"b\\n")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"a\nb\n", b"noise\n")

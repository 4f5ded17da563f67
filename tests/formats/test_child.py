"""A child process: its output, its end, and an end with its parent."""

import signal

import pytest

from pellucid.formats.child import run_child


def test_the_exit_code_and_all_output_come_back() -> None:
    said = "print(sys.argv[1], flush=True); print('x' * 200_000, file=sys.stderr); sys.exit(3)"
    code, output = run_child(said, ["first"], {}, lambda: None)
    assert code == 3 and output == "first\n" + "x" * 200_000 + "\n"


def test_a_signal_that_ended_it_is_a_negative_code() -> None:
    assert run_child("os.kill(os.getpid(), signal.SIGSEGV)", [], {}, lambda: None)[0] == -signal.SIGSEGV


def test_it_ends_where_waiting_for_it_fails() -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_child("import time; time.sleep(60)", [], {}, fail)

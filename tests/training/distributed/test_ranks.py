"""Ranks agree, wait for each other as long as they live, and say which of them is lost."""

import os
import signal
import time
from typing import Any

import pytest
import torch

from pellucid.base.errors import ConfigError, FileError
from pellucid.training.distributed import ranks as module
from pellucid.training.distributed.ranks import Ranks, rendezvous
from tests.training.distributed.forked import Failed, Job, job, meeting


def test_a_single_process_agrees_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with rendezvous() as single:
        assert (single.rank, single.world, single.is_main, single.is_single_process) == (0, 1, True, True)
        assert single.sum_numbers(3, 0.5) == [3, 0.5] and single.agree("stop") == "stop"
        assert single.gather_results(lambda: 7) == [7] and single.on_main_then_broadcast(lambda: 7) == 7
        assert single.local_slice(6) == slice(0, 6) and single.is_first_to_report()
        single.check_equal({"a": 1})


def talk(ranks: Ranks) -> dict[str, Any]:
    ranks.connect(torch.device("cpu"), 10)
    results: dict[str, Any] = {
        "sum": ranks.sum_numbers(ranks.rank, 1),
        "none": ranks.agree(""),
        "second": ranks.agree("stop" if ranks.rank == 1 else ""),
        "gathered": ranks.gather_results(lambda: ranks.rank * 10),
        "main": ranks.on_main_then_broadcast(lambda: [ranks.rank, "x"]),
        "slice": list(range(6))[ranks.local_slice(6)],
    }
    with ranks.main_process_first():
        results["when"] = time.monotonic()
        time.sleep(0.2 * ranks.is_main)
    for name, work in (("own", _fail_on_second), ("first", _fail_on_first)):
        try:
            ranks.gather_results(lambda work=work: work(ranks))  # type: ignore[misc]
        except Exception as error:
            results[f"failed {name}"] = f"{type(error).__name__}: {error}"
    for table in ({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 2 + ranks.rank}}):
        try:
            ranks.check_equal(table)
        except ConfigError as error:
            results["differ"] = str(error)
    return results


def _fail_on_second(ranks: Ranks) -> None:
    if ranks.rank == 1:
        raise FileError("cannot write x.")


def _fail_on_first(ranks: Ranks) -> None:
    if ranks.is_main:
        raise ValueError("no")


def test_two_ranks_agree_and_fail_together() -> None:
    first, second = job(2, talk)
    for key in ("sum", "none", "second", "gathered", "main", "differ"):
        assert first[key] == second[key], key
    assert first["sum"] == [1, 2] and (first["none"], first["second"]) == ("", "stop")
    assert first["gathered"] == [0, 10] and first["main"] == [0, "x"]
    assert first["slice"] + second["slice"] == list(range(6))
    assert second["when"] - first["when"] > 0.15
    assert second["failed own"] == "FileError: cannot write x."
    assert first["failed own"] == "RankError: rank 1: cannot write x."
    assert (first["failed first"], second["failed first"]) == ("ValueError: no", "RankError: rank 0: no")
    assert "b.c is 2 on rank 0 and 3 on rank 1" in first["differ"]


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INTERVAL", 0.05)
    monkeypatch.setattr(module, "LATE", 0.3)


def test_a_slow_rank_is_waited_for_and_a_stopped_one_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The interval is 0.05 s, the timeout 0.5 s; the second rank works for twice that, then is stopped."""
    quick(monkeypatch)

    def wait(ranks: Ranks) -> None:
        ranks.timeout = 0.5
        ranks.gather_results(lambda: time.sleep(1.0 * ranks.rank))
        if ranks.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        ranks.gather_results(lambda: None)

    started = Job(2, meeting(wait))
    begun = time.monotonic()
    first, second = started.results(grace=0.1)
    assert second is None and isinstance(first, Failed)
    assert 1.5 < time.monotonic() - begun < 30
    assert first.startswith("RankError: ") and f"rank 1 (process {started.pids[1]} on " in first


def test_a_rank_that_waits_in_a_kernel_for_a_dead_one_ends_at_sigterm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python's own handlers do not run there, and the sum would wait for a minute."""
    quick(monkeypatch)

    def wait(ranks: Ranks) -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)
        ranks.connect(torch.device("cpu"), 60)
        if ranks.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        ranks.sum_numbers(1)

    started = Job(2, meeting(wait))
    time.sleep(1.0)
    os.kill(started.pids[0], signal.SIGTERM)
    begun = time.monotonic()
    started.results(grace=0.1)
    assert started.codes[started.pids[0]] == 143 and time.monotonic() - begun < 30


def test_a_rank_that_fails_before_a_sum_is_named_to_those_that_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quick(monkeypatch)

    def work(ranks: Ranks) -> None:
        ranks.connect(torch.device("cpu"), 30)
        if ranks.rank == 1:
            raise ValueError("something of its own")
        ranks.sum_numbers(1)

    begun = time.monotonic()
    first, second = Job(2, meeting(work)).results(grace=5.0)
    assert second == "ValueError: something of its own"
    assert first.startswith("RankError: ") and "rank 1 (process " in first
    assert time.monotonic() - begun < 25, "it did not wait for the timeout of the sum"

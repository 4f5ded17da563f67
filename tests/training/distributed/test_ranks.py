"""Ranks agree, wait for each other as long as they live, and say which of them is lost."""

import os
import signal
import time
from typing import Any

import pytest
import torch

from pellucid.errors import ConfigError, FileError
from pellucid.training.distributed import pulse
from pellucid.training.distributed import ranks as module
from pellucid.training.distributed.ranks import Ranks, meet
from tests.training.distributed.forked import Failed, Job, job, meeting


def test_a_process_alone_agrees_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with meet() as alone:
        assert (alone.rank, alone.world, alone.first, alone.alone) == (0, 1, True, True)
        assert alone.total(3, 0.5) == [3, 0.5] and alone.agree("stop") == "stop"
        assert alone.together(lambda: 7) == [7] and alone.first_alone(lambda: 7) == 7
        assert alone.mine(6) == slice(0, 6) and alone.speaks()
        alone.compare({"a": 1})


def talk(ranks: Ranks) -> dict[str, Any]:
    ranks.connect(torch.device("cpu"), 10)
    told: dict[str, Any] = {
        "total": ranks.total(ranks.rank, 1),
        "nobody": ranks.agree(""),
        "second": ranks.agree("stop" if ranks.rank == 1 else ""),
        "together": ranks.together(lambda: ranks.rank * 10),
        "first": ranks.first_alone(lambda: [ranks.rank, "x"]),
        "mine": list(range(6))[ranks.mine(6)],
    }
    with ranks.first_goes_first():
        told["when"] = time.monotonic()
        time.sleep(0.2 * ranks.first)
    for name, work in (("own", _fail_on_second), ("first", _fail_on_first)):
        try:
            ranks.together(lambda work=work: work(ranks))  # type: ignore[misc]
        except Exception as error:
            told[f"failed {name}"] = f"{type(error).__name__}: {error}"
    for table in ({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 2 + ranks.rank}}):
        try:
            ranks.compare(table)
        except ConfigError as error:
            told["differ"] = str(error)
    return told


def _fail_on_second(ranks: Ranks) -> None:
    if ranks.rank == 1:
        raise FileError("cannot write x.")


def _fail_on_first(ranks: Ranks) -> None:
    if ranks.first:
        raise ValueError("no")


def test_two_ranks_agree_and_fail_together() -> None:
    first, second = job(2, talk)
    for key in ("total", "nobody", "second", "together", "first", "differ"):
        assert first[key] == second[key], key
    assert first["total"] == [1, 2] and (first["nobody"], first["second"]) == ("", "stop")
    assert first["together"] == [0, 10] and first["first"] == [0, "x"]
    assert first["mine"] + second["mine"] == list(range(6))
    assert second["when"] - first["when"] > 0.15
    assert second["failed own"] == "FileError: cannot write x."
    assert first["failed own"] == "RankError: rank 1: cannot write x."
    assert (first["failed first"], second["failed first"]) == ("ValueError: no", "RankError: rank 0: no")
    assert "b.c is 2 on rank 0 and 3 on rank 1" in first["differ"]


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (module, pulse):
        monkeypatch.setattr(place, "BEAT", 0.05)
        monkeypatch.setattr(place, "SILENT", 0.3)


def test_whoever_works_long_is_waited_for_and_whoever_is_stopped_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A beat of 0.05 s and a patience of 0.5 s; the second works for twice that, then is stopped."""
    quick(monkeypatch)

    def wait(ranks: Ranks) -> None:
        ranks.timeout = 0.5
        ranks.together(lambda: time.sleep(1.0 * ranks.rank))
        if ranks.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        ranks.together(lambda: None)

    started = Job(2, meeting(wait))
    begun = time.monotonic()
    first, second = started.results(grace=0.1)
    assert second is None and isinstance(first, Failed)
    assert 1.5 < time.monotonic() - begun < 30
    assert first.startswith(f"RankError: lost touch with rank 1 (process {started.pids[1]} on ")


def test_who_waits_in_a_kernel_for_a_dead_rank_still_ends_when_told_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python's own handlers do not run there, and the sum would wait for a minute."""
    quick(monkeypatch)

    def wait(ranks: Ranks) -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)
        ranks.connect(torch.device("cpu"), 60)
        if ranks.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        ranks.total(1)

    started = Job(2, meeting(wait))
    time.sleep(1.0)
    os.kill(started.pids[0], signal.SIGTERM)
    begun = time.monotonic()
    started.results(grace=0.1)
    assert started.codes[started.pids[0]] == 143 and time.monotonic() - begun < 30


def test_a_rank_that_fails_before_a_sum_is_named_to_those_who_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quick(monkeypatch)

    def work(ranks: Ranks) -> None:
        ranks.connect(torch.device("cpu"), 30)
        if ranks.rank == 1:
            raise ValueError("something of its own")
        ranks.total(1)

    begun = time.monotonic()
    first, second = Job(2, meeting(work)).results(grace=5.0)
    assert second == "ValueError: something of its own"
    assert first.startswith("RankError: lost touch with rank 1 (process ")
    assert time.monotonic() - begun < 25, "it did not wait for the timeout of the sum"

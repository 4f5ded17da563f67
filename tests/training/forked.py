"""Several ranks on one machine, forked from a process that has torch already: a job takes half a second."""

import os
import pickle
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch

from pellucid.training.ranks import Ranks, meet


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Failed(str):
    """The words of an error."""


class Job:
    """Each rank does `work(ranks)`; like torchrun, all are ended when the first one fails."""

    def __init__(self, world: int, work: Callable[[Ranks], Any]) -> None:
        port = free_port()
        started = [self._fork(rank, world, port, work) for rank in range(world)]
        self.pids, self.pipes = [pid for pid, _ in started], [pipe for _, pipe in started]

    def _fork(self, rank: int, world: int, port: int, work: Callable[[Ranks], Any]) -> tuple[int, int]:
        out, tell = os.pipe()
        child = os.fork()
        if child:
            os.close(tell)
            return child, out
        code = 1
        try:
            os.environ.update(
                RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
            )  # fmt: skip
            torch.set_num_threads(1)
            with meet() as ranks:
                made = work(ranks)
            with os.fdopen(tell, "wb") as file:
                pickle.dump(made, file)
            code = 0
        except BaseException as error:
            if os.environ.get("SHOW_RANKS"):
                traceback.print_exc()
            with os.fdopen(tell, "wb") as file:
                pickle.dump(Failed(f"{type(error).__name__}: {error}"), file)
        finally:
            sys.stdout.flush()
            os._exit(code)

    def results(self, seconds: float = 60.0) -> list[Any]:
        """What each rank gave, or the words of its error; None of one that was killed."""
        left, until = set(self.pids), time.monotonic() + seconds
        while left:
            for pid in list(left):
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    left.discard(pid)
                    if status:
                        until = min(until, time.monotonic() + 3.0)
            if time.monotonic() > until:
                self.end()
            time.sleep(0.002)
        made = []
        for pipe in self.pipes:
            with os.fdopen(pipe, "rb") as file:
                data = file.read()
            made.append(pickle.loads(data) if data else None)
        return made

    def end(self) -> None:
        for pid in self.pids:
            try:
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def job(world: int, work: Callable[[Ranks], Any]) -> list[Any]:
    """What each rank gave; an error where one failed."""
    made = Job(world, work).results()
    assert not any(one is None or isinstance(one, Failed) for one in made), made
    return made

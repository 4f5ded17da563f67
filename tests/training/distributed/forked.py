"""Several ranks on one machine, forked from a process that has torch already: a job takes half a second."""

import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo  # once, and not in every rank
import torch.distributed.fsdp
import torch.distributed.tensor
import torch.nn.parallel
from torch.distributed import TCPStore

from pellucid.training.distributed.ranks import Ranks, rendezvous


class Failed(str):
    """The words of an error."""


class Job:
    """Each rank does its `work(rank)`. Like torchrun, this keeps the store, and ends all when one fails."""

    def __init__(self, world: int, work: Callable[[int], Any]) -> None:
        self.store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        port = self.store.port
        self.files = [tempfile.TemporaryFile() for _ in range(world)]  # noqa: SIM115
        self.pids = [self._fork(rank, world, port, work) for rank in range(world)]

    def _fork(self, rank: int, world: int, port: int, work: Callable[[int], Any]) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the store's thread holds no lock of ours
            child = os.fork()
        if child:
            return child
        code = 1
        try:
            os.environ.update(
                RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port), TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0",
            )  # fmt: skip
            torch.set_num_threads(1)
            made = work(rank)
            pickle.dump(made, self.files[rank])
            code = 0
        except BaseException as error:
            if os.environ.get("SHOW_RANKS"):
                traceback.print_exc()
            pickle.dump(Failed(f"{type(error).__name__}: {error}"), self.files[rank])
        finally:
            self.files[rank].flush()
            sys.stdout.flush()
            os._exit(code)

    def results(self, seconds: float = 60.0, grace: float = 3.0) -> list[Any]:
        """What each rank gave, or the words of its error; None of one that was killed."""
        left, until = set(self.pids), time.monotonic() + seconds
        self.codes = dict.fromkeys(self.pids, 0)
        while left:
            for pid in list(left):
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    left.discard(pid)
                    self.codes[pid] = os.waitstatus_to_exitcode(status)
                    if status:
                        until = min(until, time.monotonic() + grace)
            if time.monotonic() > until:
                self.end()
            time.sleep(0.002)
        made = []
        for file in self.files:
            with file:
                file.seek(0)
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


def meeting(work: Callable[[Ranks], Any]) -> Callable[[int], Any]:
    """The same work by ranks that have met."""

    def met(_: int) -> Any:
        with rendezvous() as ranks:
            return work(ranks)

    return met


def job(world: int, work: Callable[[Ranks], Any]) -> list[Any]:
    """What the work of each rank gave; an error where one failed."""
    made = Job(world, meeting(work)).results()
    assert not any(one is None or isinstance(one, Failed) for one in made), made
    return made

"""The ranks of a distributed run: processes that torchrun started, and what they exchange.

    ranks = rendezvous()                # rank 0 of 1 where there is no launcher
    ranks.connect(device, timeout=120)  # from here on tensors can be summed over all ranks
    ranks.sum_numbers(3.0)              # [3.0 × the number of ranks]

With a single process every operation returns its own value and nothing is sent, so that callers need not
distinguish.

Ranks communicate in two ways. Collective operations on tensors are fast, and fail after the timeout. Results
in the key-value store, which `gather_results` uses, may take as long as the work takes, an hour of encoding
or a minute of saving: a rank that waits monitors the heartbeats of the others, and gives up on one that had
none for the timeout.
"""

import contextlib
import hashlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from pellucid.base.errors import ConfigError, PellucidError, RankError, UsageError

if TYPE_CHECKING:  # a single process sends nothing, and commands that only read a run start without torch
    import torch
    from torch import Tensor

T = TypeVar("T")
RENDEZVOUS_SECONDS = 300.0
"""Seconds in which all ranks have to be there at the start."""
MAX_WORD = 64
"""Bytes of a word to agree on, at most."""
BACKENDS = ("gloo", "NCCL", "c10d", "TCPStore", "Socket", "onnection")
"""What an error of torch about the other ranks contains."""
RESUME = "The run can continue from its newest checkpoint: --resume."
INTERVAL = 0.25
"""Seconds between two heartbeats."""
LATE = 3 * INTERVAL
"""Seconds without a heartbeat after which a rank is suspected; on a busy machine one may be late."""


class Ranks:
    """One rank of `world`; `local_rank` is its number on its machine. A single process has no store."""

    def __init__(self, rank: int = 0, world: int = 1, local_rank: int = 0, store: Any = None) -> None:
        self.rank, self.world, self.local_rank, self.store = rank, world, local_rank, store
        self.timeout = RENDEZVOUS_SECONDS
        self._is_connected, self._exchanges = False, 0
        self._heartbeat = Heartbeat(self) if store is not None else None

    @property
    def is_main(self) -> bool:
        """Returns whether this is rank 0, which prints, logs and renames."""
        return self.rank == 0

    @property
    def is_single_process(self) -> bool:
        return self.store is None

    # ---- connecting and leaving

    def connect(self, device: "torch.device", timeout: float) -> None:
        """Initializes torch's process group: NCCL on GPUs, gloo on CPUs."""
        if self.is_single_process or self._is_connected:
            return
        import torch.distributed as dist
        from torch._C._distributed_c10d import PrefixStore

        self.timeout = timeout
        self.store.set_timeout(timedelta(seconds=timeout))
        with self.catch_lost_ranks():
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
                store=PrefixStore("connect", self.store),
                rank=self.rank,
                world_size=self.world,
                timeout=timedelta(seconds=timeout),
            )
        self._is_connected = True

    def local_device(self, device: "torch.device") -> "torch.device":
        """Returns the GPU of this rank's local rank; a CPU is shared by all."""
        if self.is_single_process or device.type != "cuda":
            return device
        if device.index is not None:
            raise UsageError(
                f"train.device={device} would be the device of all ranks: use cuda, and each rank uses the "
                "GPU of its local rank."
            )
        import torch

        if self.local_rank >= torch.cuda.device_count():
            raise UsageError(
                f"rank {self.rank} is local rank {self.local_rank} of a machine with "
                f"{torch.cuda.device_count()} GPUs: start at most that many ranks on it, or use "
                "train.device=cpu."
            )
        torch.cuda.set_device(self.local_rank)
        return torch.device("cuda", self.local_rank)

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Leaves; after an error at once, since the other ranks may never arrive here."""
        if kind is None and not self.is_single_process:
            self.gather_results(lambda: None)
            if self._is_connected:
                import torch.distributed as dist

                dist.destroy_process_group()
            self._leave_store()
        if self._heartbeat is not None:
            self._heartbeat.stop()

    def _leave_store(self) -> None:
        """Leaves the store; the main rank, whose process may host it, leaves last."""
        with contextlib.suppress(RuntimeError):
            self.store.set(f"left/{self.rank}", "")
            if self.is_main:
                until = time.monotonic() + LATE
                keys = [f"left/{rank}" for rank in range(self.world)]
                while not self.store.check(keys) and time.monotonic() < until:
                    time.sleep(0.01)

    # ---- collective operations on tensors

    def sum_numbers(self, *numbers: float) -> list[float]:
        """Returns the sum of each number over all ranks."""
        if self.is_single_process:
            return list(numbers)
        import torch

        return self.all_reduce(torch.tensor(numbers, dtype=torch.float64)).tolist()

    def all_reduce(self, tensor: "Tensor") -> "Tensor":
        """Sums a tensor over all ranks, in place, and returns it."""
        if not self.is_single_process:
            import torch.distributed as dist

            with self.catch_lost_ranks():
                dist.all_reduce(tensor)
        return tensor

    def agree(self, word: str) -> str:
        """Returns the word of the lowest rank whose word is not empty; the same on all ranks."""
        if self.is_single_process:
            return word
        import torch
        import torch.distributed as dist

        own = torch.zeros(MAX_WORD, dtype=torch.uint8)
        data = word.encode()[:MAX_WORD]
        own[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else 0
        gathered = [torch.empty_like(own) for _ in range(self.world)]
        with self.catch_lost_ranks():
            dist.all_gather(gathered, own)
        words = [bytes(one.tolist()).rstrip(b"\0").decode(errors="ignore") for one in gathered]
        return next(filter(None, words), "")

    def local_slice(self, count: int) -> slice:
        """Returns which of `count` rows are this rank's."""
        return slice(self.rank * count // self.world, (self.rank + 1) * count // self.world)

    # ---- results in the store

    def gather_results(self, work: Callable[[], T]) -> list[T]:
        """Calls `work` on every rank and returns all results, which JSON can hold, on every rank.

        Where it fails on one rank, it fails on all.
        """
        if self.is_single_process:
            return [work()]
        own: dict[str, Any]
        try:
            own, failure = {"result": work()}, None
        except Exception as error:
            own, failure = {"error": str(error) or type(error).__name__}, error
        results = self._exchange(json.dumps(own))
        if failure is not None:
            raise failure
        for rank, other in enumerate(results):
            if "error" in other:
                raise RankError(f"rank {rank}: {other['error']}")
        return [other["result"] for other in results]

    def on_main_then_broadcast(self, work: Callable[[], T]) -> T:
        """Calls `work` on the main rank and returns its result on every rank."""
        results: list[Any] = self.gather_results(work if self.is_main else lambda: None)
        return results[0]  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def main_process_first(self) -> Iterator[None]:
        """Runs the block on the main rank, then on all others, which find the files that it wrote."""
        if not self.is_main:
            self.on_main_then_broadcast(lambda: None)
        try:
            yield
        except PellucidError as error:
            if self.is_main:
                self._broadcast_failure(error)
            raise
        if self.is_main:
            self.on_main_then_broadcast(lambda: None)

    def _broadcast_failure(self, error: PellucidError) -> None:
        with contextlib.suppress(PellucidError):
            self.on_main_then_broadcast(lambda: _raise(error))

    def check_equal(self, table: Mapping[str, Any]) -> None:
        """Refuses ranks that have different tables, by the first key that differs."""
        keys = flatten(table)
        digest = hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()
        digests = self.gather_results(lambda: digest)
        different = next((rank for rank, other in enumerate(digests) if other != digests[0]), None)
        if different is None:
            return
        tables = self.gather_results(lambda: keys if self.rank in (0, different) else {})
        ours, theirs = tables[0], tables[different]
        key = next(key for key in [*ours, *theirs] if ours.get(key) != theirs.get(key))
        raise ConfigError(
            f"the ranks have different recipes: {key} is {ours.get(key)!r} on rank 0 and "
            f"{theirs.get(key)!r} on rank {different}. Give every machine the same command."
        )

    def _exchange(self, text: str) -> list[Any]:
        """Returns every rank's text, read as JSON, once all are in the store."""
        self._exchanges += 1
        keys = [f"exchange/{self._exchanges}/{rank}" for rank in range(self.world)]
        with self.catch_lost_ranks():
            self.store.set(keys[self.rank], text)
            self._wait(keys)
            return [json.loads(self.store.get(key)) for key in keys]

    def _wait(self, keys: list[str]) -> None:
        """Waits for these keys, one of each rank, as long as ranks without theirs have heartbeats."""
        pause, monitor = 0.001, HeartbeatMonitor(self)
        while not self.store.check(keys):
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
            silent = monitor.find_silent(self.timeout)
            if silent := [rank for rank in silent if not self.store.check([keys[rank]])]:
                raise RankError(self.describe_lost(silent))

    # ---- lost ranks

    def count_heartbeats(self, rank: int) -> int:
        return int(self.store.add(f"heartbeat/{rank}", 0))

    @contextlib.contextmanager
    def catch_lost_ranks(self) -> Iterator[None]:
        """Turns torch's error about other ranks into a RankError that names those without a heartbeat."""
        try:
            yield
        except RuntimeError as error:
            if self.is_single_process or not any(word in str(error) for word in BACKENDS):
                raise
            raise RankError(self.describe_lost(self._find_silent(), str(error))) from None

    def _find_silent(self) -> list[int]:
        monitor, until = HeartbeatMonitor(self), time.monotonic() + 1.2 * LATE
        try:
            while time.monotonic() < until:
                monitor.find_silent(LATE)
                time.sleep(INTERVAL / 4)
            return monitor.find_silent(LATE)
        except RuntimeError:  # the store is gone as well
            return []

    def describe_lost(self, silent: Iterable[int], reason: str = "") -> str:
        """Returns the message about ranks that were lost."""
        names = [f"rank {rank} ({self._describe_process(rank)})" for rank in silent]
        if names:
            return f"lost {', '.join(names)}: killed, stopped or disconnected. {RESUME}"
        first_line = reason.partition("\n")[0]
        return (
            f"lost the other ranks: {first_line} Where they were only slow, a longer train.timeout helps (it "
            f"is {self.timeout:g} s). {RESUME}"
        )

    def _describe_process(self, rank: int) -> str:
        with contextlib.suppress(RuntimeError):
            if self.store.check([f"process/{rank}"]):
                return str(self.store.get(f"process/{rank}").decode())
        return "unknown"

    def is_first_to_report(self) -> bool:
        """Returns whether this rank prints why the run ends: the first one that calls this."""
        with contextlib.suppress(RuntimeError):
            return self.is_single_process or int(self.store.add("reports", 1)) == 1
        return True


# ---- heartbeats


class HeartbeatMonitor:
    """When the heartbeat of each other rank was last seen, by this rank's own clock."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks, now = ranks, time.monotonic()
        self._seen = {rank: (-1, now) for rank in range(ranks.world) if rank != ranks.rank}
        """The count of heartbeats, and when it last changed."""
        self._polled_at = 0.0

    def find_silent(self, seconds: float) -> list[int]:
        """Returns the ranks without a heartbeat for that many seconds."""
        now = time.monotonic()
        if now - self._polled_at > INTERVAL / 2:
            self._polled_at = now
            for rank, (before, _) in self._seen.items():
                if (count := self.ranks.count_heartbeats(rank)) != before:
                    self._seen[rank] = count, now
        return [rank for rank, (_, last) in self._seen.items() if now - last > seconds]


class Heartbeat(threading.Thread):
    """Counts heartbeats of this process in the store, and ends it after SIGTERM where another rank is dead.

    torchrun sends SIGTERM to all ranks when one has died. A rank that waits in a kernel for the dead one
    never handles the signal; so it also wakes this thread, which then monitors the others.
    """

    def __init__(self, ranks: Ranks) -> None:
        super().__init__(daemon=True, name="pellucid-heartbeat")
        self.ranks, self._stopped = ranks, threading.Event()
        ranks.store.set(f"process/{ranks.rank}", f"process {os.getpid()} on {socket.gethostname()}")
        self._signals, wake = socket.socketpair()
        self._wake = wake
        for end in (self._signals, wake):
            end.setblocking(False)
        self._before = signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self.start()

    def run(self) -> None:
        monitor: HeartbeatMonitor | None = None
        try:
            while not self._stopped.wait(INTERVAL):
                self.ranks.store.add(f"heartbeat/{self.ranks.rank}", 1)
                if monitor is None and self._has_sigterm():
                    monitor = HeartbeatMonitor(self.ranks)
                if monitor is not None and (silent := monitor.find_silent(4 * LATE)):
                    self._exit(silent)
        except RuntimeError:  # the store is gone, and with it the run
            return

    def _has_sigterm(self) -> bool:
        try:
            return signal.SIGTERM in self._signals.recv(64)
        except BlockingIOError:
            return False

    def _exit(self, silent: list[int]) -> None:
        if not self._stopped.is_set() and self.ranks.is_first_to_report():
            os.write(2, f"pellucid: {self.ranks.describe_lost(silent)}\n".encode())
        os._exit(128 + signal.SIGTERM)

    def stop(self) -> None:
        self._stopped.set()
        self.join(2 * INTERVAL)
        signal.set_wakeup_fd(self._before)
        self._signals.close()
        self._wake.close()


# ---- the start


SINGLE_PROCESS = Ranks()


def rendezvous() -> Ranks:
    """Returns the ranks that a launcher such as torchrun started; a single process where there is none."""
    needed = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return Ranks()
    if missing := [name for name in needed if name not in os.environ]:
        raise UsageError(f"RANK is set, and {missing[0]} is not: start the ranks with torchrun.")
    from torch._C._distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous as torch_rendezvous

    try:
        store, rank, world = next(torch_rendezvous("env://", timeout=timedelta(seconds=RENDEZVOUS_SECONDS)))
    except (RuntimeError, ValueError) as error:
        first_line = str(error).partition("\n")[0]
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise RankError(f"the ranks could not connect to {address}: {first_line}") from None
    return Ranks(rank, world, int(os.environ.get("LOCAL_RANK", rank)), PrefixStore("pellucid", store))


def _raise(error: Exception) -> None:
    raise error


def flatten(table: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Returns one level of keys with dots: {"a": {"b": 1}} is {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= flatten(value, f"{path}{key}.") if isinstance(value, Mapping) else {f"{path}{key}": value}
    return flat

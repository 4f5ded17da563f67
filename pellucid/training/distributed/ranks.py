"""Who takes part in a run, and what they tell each other: several processes, begun by torchrun.

    ranks = meet()                      # rank 0 of 1 where nobody else was begun
    ranks.connect(device, timeout=120)  # from here on tensors can be added up over all ranks
    ranks.total(3.0)                    # 3 × the number of ranks

A process alone agrees with itself, and nothing is sent; so nobody who uses this asks how many there are.

Ranks talk in two ways. Sums of tensors are quick and meet within the timeout, or fail. Notes on a board,
which `together` uses, may take as long as the work takes, an hour of tokenising or a minute of saving: who
waits listens to the pulse of the others, and gives up when one of them was not heard for the timeout.
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from pellucid.errors import ConfigError, PellucidError, RankError, UsageError
from pellucid.training.distributed.pulse import BEAT, SILENT, Pulse, Watch

if TYPE_CHECKING:  # a process alone sends nothing, and whoever only looks at a run need not wait for torch
    import torch
    from torch import Tensor

T = TypeVar("T")
MEETING = 300.0
"""Seconds in which all ranks have to be there at the start."""
WORD = 64
"""Bytes of a word to agree on, at most."""
OTHERS = ("gloo", "NCCL", "c10d", "TCPStore", "Socket", "onnection")
"""What an error about the other ranks speaks of."""


class Ranks:
    """One rank of `world`; `local` is its number on its own machine. Without a board it is alone."""

    def __init__(self, rank: int = 0, world: int = 1, local: int = 0, board: Any = None) -> None:
        self.rank, self.world, self.local, self.board = rank, world, local, board
        self.timeout = MEETING
        self._connected, self._notes = False, 0
        self._pulse = Pulse(self) if board is not None else None

    @property
    def first(self) -> bool:
        """The rank that prints, logs and renames."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        return self.board is None

    # ---- the meeting and its end

    def connect(self, device: "torch.device", timeout: float) -> None:
        """Make sums over all ranks possible: by NCCL on GPUs, by gloo on CPUs."""
        if self.alone or self._connected:
            return
        import torch.distributed as dist
        from torch._C._distributed_c10d import PrefixStore

        self.timeout = timeout
        self.board.set_timeout(timedelta(seconds=timeout))
        with self.hearing():
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
                store=PrefixStore("connect", self.board),
                rank=self.rank,
                world_size=self.world,
                timeout=timedelta(seconds=timeout),
            )
        self._connected = True

    def device(self, device: "torch.device") -> "torch.device":
        """The rank's own of the GPUs of its machine; a CPU is everybody's."""
        if self.alone or device.type != "cuda":
            return device
        if device.index is not None:
            raise UsageError(
                f"train.device={device} would be that of all ranks: use cuda, and each takes its own."
            )
        import torch

        if self.local >= torch.cuda.device_count():
            raise UsageError(
                f"rank {self.rank} is the {self.local + 1}. of its machine, which has "
                f"{torch.cuda.device_count()} GPUs: start no more ranks than that, or use train.device=cpu."
            )
        torch.cuda.set_device(self.local)
        return torch.device("cuda", self.local)

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Leave; after an error at once, since the others may be where nobody can wait for them."""
        if kind is None and not self.alone:
            self.together(lambda: None)
            if self._connected:
                import torch.distributed as dist

                dist.destroy_process_group()
            self._close_the_door()
        if self._pulse is not None:
            self._pulse.stop()

    def _close_the_door(self) -> None:
        """The first rank, whose process may hold the board, leaves last."""
        with contextlib.suppress(RuntimeError):
            self.board.set(f"left/{self.rank}", "")
            if self.first:
                until = time.monotonic() + SILENT
                keys = [f"left/{rank}" for rank in range(self.world)]
                while not self.board.check(keys) and time.monotonic() < until:
                    time.sleep(0.01)

    # ---- sums

    def total(self, *numbers: float) -> list[float]:
        """The sum of each number over all ranks."""
        if self.alone:
            return list(numbers)
        import torch

        return self.sum(torch.tensor(numbers, dtype=torch.float64)).tolist()

    def sum(self, tensor: "Tensor") -> "Tensor":
        """The sum of a tensor over all ranks, in its place."""
        if not self.alone:
            import torch.distributed as dist

            with self.hearing():
                dist.all_reduce(tensor)
        return tensor

    def agree(self, word: str) -> str:
        """The word of the first rank that has one; all ranks get the same."""
        if self.alone:
            return word
        import torch
        import torch.distributed as dist

        said = torch.zeros(WORD, dtype=torch.uint8)
        data = word.encode()[:WORD]
        said[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else 0
        heard = [torch.empty_like(said) for _ in range(self.world)]
        with self.hearing():
            dist.all_gather(heard, said)
        words = [bytes(one.tolist()).rstrip(b"\0").decode(errors="ignore") for one in heard]
        return next(filter(None, words), "")

    def mine(self, count: int) -> slice:
        """Of so many rows, those of this rank."""
        return slice(self.rank * count // self.world, (self.rank + 1) * count // self.world)

    # ---- notes on the board

    def together(self, work: Callable[[], T]) -> list[T]:
        """What the work of each rank gave, as JSON has it; where it fails on one, it fails on all."""
        if self.alone:
            return [work()]
        note: dict[str, Any]
        try:
            note, failed = {"gave": work()}, None
        except Exception as error:
            note, failed = {"failed": str(error) or type(error).__name__}, error
        notes = self._exchanged(json.dumps(note))
        if failed is not None:
            raise failed
        for rank, other in enumerate(notes):
            if "failed" in other:
                raise RankError(f"rank {rank}: {other['failed']}")
        return [other["gave"] for other in notes]

    def first_alone(self, work: Callable[[], T]) -> T:
        """What the work of the first rank gave; the others wait for it."""
        given: list[Any] = self.together(work if self.first else lambda: None)
        return given[0]  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def first_goes_first(self) -> Iterator[None]:
        """The block of the first rank, then those of all others: what it makes, they find made."""
        if not self.first:
            self.first_alone(lambda: None)
        try:
            yield
        except PellucidError as error:
            if self.first:
                self._refuse(error)
            raise
        if self.first:
            self.first_alone(lambda: None)

    def _refuse(self, error: PellucidError) -> None:
        with contextlib.suppress(PellucidError):
            self.first_alone(lambda: _raise(error))

    def compare(self, table: Mapping[str, Any]) -> None:
        """All ranks were asked the same, or it is said who was not."""
        keys = flat(table)
        digest = hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()
        digests = self.together(lambda: digest)
        strange = next((rank for rank, other in enumerate(digests) if other != digests[0]), None)
        if strange is None:
            return
        tables = self.together(lambda: keys if self.rank in (0, strange) else {})
        ours, theirs = tables[0], tables[strange]
        key = next(key for key in [*ours, *theirs] if ours.get(key) != theirs.get(key))
        raise ConfigError(
            f"the ranks were not asked the same: {key} is {ours.get(key)!r} on rank 0 and "
            f"{theirs.get(key)!r} on rank {strange}. Give every machine the same command."
        )

    def _exchanged(self, text: str) -> list[Any]:
        """Every rank's note on the board, once all are there."""
        self._notes += 1
        keys = [f"note/{self._notes}/{rank}" for rank in range(self.world)]
        with self.hearing():
            self.board.set(keys[self.rank], text)
            self._wait(keys)
            return [json.loads(self.board.get(key)) for key in keys]

    def _wait(self, keys: list[str]) -> None:
        """Until these notes are there, one of each rank; as long as those who owe one are heard."""
        pause, watch = 0.001, Watch(self)
        while not self.board.check(keys):
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
            if silent := [rank for rank in watch.silent(self.timeout) if not self.board.check([keys[rank]])]:
                raise RankError(self.lost(silent))

    # ---- when one is missing

    def beat(self, rank: int) -> int:
        """How often a rank's heart has beaten."""
        return int(self.board.add(f"pulse/{rank}", 0))

    @contextlib.contextmanager
    def hearing(self) -> Iterator[None]:
        """In this block an error about the other ranks is one line that says who is not heard."""
        try:
            yield
        except RuntimeError as error:
            if self.alone or not any(word in str(error) for word in OTHERS):
                raise
            raise RankError(self.lost(self._silent(), str(error))) from None

    def _silent(self) -> list[int]:
        watch, until = Watch(self), time.monotonic() + 1.2 * SILENT
        try:
            while time.monotonic() < until:
                watch.silent(SILENT)
                time.sleep(BEAT / 4)
            return watch.silent(SILENT)
        except RuntimeError:  # the board is gone as well
            return []

    def lost(self, silent: Iterable[int], reason: str = "") -> str:
        names = [f"rank {rank} ({self._who(rank)})" for rank in silent]
        if names:
            return f"lost touch with {', '.join(names)}: killed, stopped or cut off. {RESUME}"
        about = reason.partition("\n")[0]
        return (
            f"lost touch with the other ranks: {about} Where they were only late, a longer train.timeout "
            f"helps (it is {self.timeout:g} s). {RESUME}"
        )

    def _who(self, rank: int) -> str:
        with contextlib.suppress(RuntimeError):
            if self.board.check([f"who/{rank}"]):
                return str(self.board.get(f"who/{rank}").decode())
        return "unknown"

    def speaks(self) -> bool:
        """Whether it is this rank that tells why the run ends: the first that has something to tell."""
        with contextlib.suppress(RuntimeError):
            return self.alone or int(self.board.add("voices", 1)) == 1
        return True


ALONE = Ranks()
RESUME = "The run can go on from its newest checkpoint: --resume."


def meet() -> Ranks:
    """Find the others that a launcher such as torchrun has begun; alone where it has not."""
    wanted = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return Ranks()
    if missing := [name for name in wanted if name not in os.environ]:
        raise UsageError(f"RANK is set, and {missing[0]} is not: begin the ranks with torchrun.")
    from torch._C._distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    try:
        board, rank, world = next(rendezvous("env://", timeout=timedelta(seconds=MEETING)))
    except (RuntimeError, ValueError) as error:
        about = str(error).partition("\n")[0]
        raise RankError(
            f"the ranks could not meet at {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}: {about}"
        ) from None
    return Ranks(rank, world, int(os.environ.get("LOCAL_RANK", rank)), PrefixStore("pellucid", board))


def _raise(error: Exception) -> None:
    raise error


def flat(table: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """One level of keys with dots."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        inner = flat(value, f"{path}{key}.") if isinstance(value, Mapping) else {f"{path}{key}": value}
        found |= inner
    return found

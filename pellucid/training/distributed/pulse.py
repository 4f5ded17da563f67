"""The heartbeat of a rank, and who is not heard any more."""

import os
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pellucid.training.distributed.ranks import Ranks

BEAT = 0.25
"""Seconds between two beats."""
SILENT = 3 * BEAT
"""So long without a beat, and something is wrong; on a busy machine a beat may be late."""


class Watch:
    """When each rank was last heard, by this rank's own clock."""

    def __init__(self, ranks: "Ranks") -> None:
        self.ranks, now = ranks, time.monotonic()
        self.heard = {rank: (-1, now) for rank in range(ranks.world) if rank != ranks.rank}
        self.looked = 0.0

    def silent(self, seconds: float) -> list[int]:
        """Those whose heart was not heard to beat for so long."""
        now = time.monotonic()
        if now - self.looked > BEAT / 2:
            self.looked = now
            for rank, (before, _) in self.heard.items():
                if (beat := self.ranks.beat(rank)) != before:
                    self.heard[rank] = beat, now
        return [rank for rank, (_, last) in self.heard.items() if now - last > seconds]


class Pulse(threading.Thread):
    """Lets the others hear that this process is alive; and ends it when it was told to end and one is dead.

    torchrun tells all to end when one has died. Who waits in a kernel for the dead one never sees that; so
    the signal also comes to this thread, which then listens for the others.
    """

    def __init__(self, ranks: "Ranks") -> None:
        super().__init__(daemon=True, name="pellucid-pulse")
        self.ranks, self._stopped = ranks, threading.Event()
        ranks.board.set(f"who/{ranks.rank}", f"process {os.getpid()} on {socket.gethostname()}")
        self._signals, wake = socket.socketpair()
        self._wake = wake
        for end in (self._signals, wake):
            end.setblocking(False)
        self._before = signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self.start()

    def run(self) -> None:
        watch: Watch | None = None
        try:
            while not self._stopped.wait(BEAT):
                self.ranks.board.add(f"pulse/{self.ranks.rank}", 1)
                if watch is None and self._told():
                    watch = Watch(self.ranks)
                if watch is not None and (silent := watch.silent(4 * SILENT)):
                    self._end(silent)
        except RuntimeError:  # the board is gone, and with it the run
            return

    def _told(self) -> bool:
        try:
            return signal.SIGTERM in self._signals.recv(64)
        except BlockingIOError:
            return False

    def _end(self, silent: list[int]) -> None:
        if not self._stopped.is_set() and self.ranks.speaks():
            os.write(2, f"pellucid: {self.ranks.lost(silent)}\n".encode())
        os._exit(128 + signal.SIGTERM)

    def stop(self) -> None:
        self._stopped.set()
        self.join(2 * BEAT)
        signal.set_wakeup_fd(self._before)
        self._signals.close()
        self._wake.close()

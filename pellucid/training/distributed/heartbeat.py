"""The heartbeat of a rank in the shared store, and the monitor that finds ranks without one."""

import os
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pellucid.training.distributed.ranks import Ranks

INTERVAL = 0.25
"""Seconds between two heartbeats."""
LATE = 3 * INTERVAL
"""Seconds without a heartbeat after which a rank is suspected; on a busy machine one may be late."""


class HeartbeatMonitor:
    """When the heartbeat of each other rank was last seen, by this rank's own clock."""

    def __init__(self, ranks: "Ranks") -> None:
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

    def __init__(self, ranks: "Ranks") -> None:
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

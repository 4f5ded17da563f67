"""The figures of a run as event files that TensorBoard draws: `tensorboard --logdir runs`. Extra: `track`.

    board = Board(out / "tensorboard")
    board.write({"kind": "step", "step": 120, "loss": 1.25})     # step/loss at 120

They are those of the log, which has them whether anybody asks for this or not.
"""

from pathlib import Path
from typing import Any

from pellucid.errors import UsageError
from pellucid.training.history.log import Line

DRAWN = ("step", "evaluation")
"""Kinds of lines that are points of curves."""


class Board:
    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UsageError(
                "train.tensorboard=true needs tensorboard: pip install 'pellucid[track]'. Without it, "
                "log.jsonl has the same figures, and `pellucid plot` draws them."
            ) from None
        self._folder, self._kind = folder, SummaryWriter
        self._writer: Any = None

    def write(self, line: Line) -> None:
        """One point for each figure; at the start of a run, later points of an earlier start are undone."""
        if line["kind"] in ("start", "resume"):
            self.close()
            self._writer = self._kind(str(self._folder), purge_step=line["step"] + 1)
        if line["kind"] in DRAWN:
            for name, value in line.items():
                if name != "step" and type(value) in (int, float):
                    self._writer.add_scalar(f"{line['kind']}/{name}", value, line["step"])

    def settle(self) -> None:
        """Have the system know all of it."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

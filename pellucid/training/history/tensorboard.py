"""The figures of a run as event files for TensorBoard: `tensorboard --logdir runs`. Extra: `track`.

    board = Board(out / "tensorboard")
    board.write({"kind": "step", "step": 120, "loss": 1.25})     # step/loss at 120

The log has the same figures in any case.
"""

from pathlib import Path
from typing import Any

from pellucid.base.errors import UsageError
from pellucid.training.history.log import Line

SCALARS = ("step", "evaluation")
"""Kinds of lines whose numbers are written."""


def writer_class() -> Any:
    """Returns torch's SummaryWriter; refuses where tensorboard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError(
            "train.tensorboard=true needs tensorboard: pip install 'pellucid[track]'. Without it, "
            "log.jsonl has the same figures, and `pellucid plot` draws them."
        ) from None
    return SummaryWriter


class Board:
    """The event files of a run, opened by the line of its start."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._writer_class = folder, writer_class()
        self._writer: Any = None

    def write(self, line: Line) -> None:
        """Writes the numbers of a log line; a start or resume drops what was written of later steps."""
        if line["kind"] in ("start", "resume"):
            self.close()
            self._writer = self._writer_class(str(self._folder), purge_step=line["step"] + 1)
        if line["kind"] in SCALARS:
            for name, value in line.items():
                if name != "step" and type(value) in (int, float):
                    self._writer.add_scalar(f"{line['kind']}/{name}", value, line["step"])

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

"""The log of a run: one JSON object per line, written at once, so that any program can follow it; and its
figures as event files for TensorBoard.

    log = Log(out / "log.jsonl")
    log.write(event, mfu=0.4)           # {"kind": "step", "step": 120, "loss": 1.25, …, "mfu": 0.4}
    cut(out / "log.jsonl", step=100)    # before resuming from the checkpoint of step 100

JSON knows no NaN and no infinity: such a figure is null, and `not_finite` says what it was.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pellucid.base.errors import FileError, UsageError, file_errors
from pellucid.base.files import UNPAIRED, read_bytes, write_line
from pellucid.training.events import (
    Compared,
    Ended,
    EndReason,
    Evaluated,
    Event,
    Recorded,
    Rescheduled,
    Saved,
    Skipped,
    Started,
    Stepped,
)

KINDS = {
    Started: "start",
    Compared: "compared",
    Stepped: "step",
    Evaluated: "evaluation",
    Saved: "saved",
    Skipped: "skipped",
    Rescheduled: "rescheduled",
    Recorded: "recorded",
}
CLOCK = frozenset({"seconds", "tokens_per_second", "mfu", "memory"})
"""Figures that no two runs have in common."""
SCALARS = ("step", "evaluation")
"""Kinds of lines whose numbers TensorBoard gets."""

Line = dict[str, Any]


class Log:
    """A log to add to. A last line that was never finished is removed first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with file_errors("write", path):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            os.ftruncate(self._file, path.read_bytes().rfind(b"\n") + 1)

    def write(self, event: Event, **more: Any) -> None:
        """Writes one line, to the system before this returns: a killed process loses none."""
        data = _encode(make_line(event, **more))
        with file_errors("write", self.path):
            write_line(self._file, data)

    def fsync(self) -> None:
        """Brings every line to the disk; before a checkpoint, so that the log is never behind one."""
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def make_line(event: Event, **more: Any) -> Line:
    """Returns the line of an event: its kind and its fields."""
    if isinstance(event, Ended):
        kind = "interrupted" if event.reason is EndReason.INTERRUPTED else "end"
        figures = {"loss": event.loss, "best": event.best, "seconds": event.seconds}
        return {"kind": kind, "step": event.step, "why": event.message} | figures | more
    fields = dict(vars(event))
    kind = "resume" if fields.pop("resumed", False) else KINDS[type(event)]
    return {"kind": kind} | fields | more


def _encode(line: Line) -> bytes:
    try:
        text = json.dumps(line, ensure_ascii=False, allow_nan=False)
    except ValueError:
        notes: dict[str, str] = {}
        plain = {key: _finite(value, key, notes) for key, value in line.items()}
        text = json.dumps(plain | {"not_finite": notes}, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode("utf-8", UNPAIRED)


def _finite(value: Any, at: str, notes: dict[str, str]) -> Any:
    """Returns the value with None for every NaN and infinity; `notes` gets where each was."""
    if isinstance(value, float) and not math.isfinite(value):
        notes[at] = str(value)
        return None
    if isinstance(value, dict):
        return {key: _finite(inner, f"{at}.{key}", notes) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner, f"{at}.{i}", notes) for i, inner in enumerate(value)]
    return value


def read(path: Path) -> list[Line]:
    """Returns every complete line of a log; a last one that a kill or a power cut truncated is omitted."""
    pieces = read_bytes(path).split(b"\n")
    last = len(pieces) - 1  # behind the last newline: nothing, or the beginning of a line
    found = []
    for i, piece in enumerate(pieces[:last]):
        if (entry := parse_line(piece)) is not None:
            found.append(entry)
        elif i < last - 1:
            raise FileError(
                f"{path} is damaged: line {i + 1} is not a line of a log. Remove it to read the others."
            )
    return found


def cut(path: Path, step: int) -> int:
    """Removes the lines after a step, which the run is about to repeat; returns how many bytes.

    From the first line on that is damaged or of a later step, since steps only grow.
    """
    if not path.exists():
        return 0
    data = read_bytes(path)
    keep = 0
    while (end := data.find(b"\n", keep)) >= 0:
        entry = parse_line(data[keep:end])
        if entry is None or not isinstance(entry.get("step"), int) or entry["step"] > step:
            break
        keep = end + 1
    with file_errors("write", path), path.open("r+b") as file:
        file.truncate(keep)
        os.fsync(file.fileno())
    return len(data) - keep


def figures(lines: Iterable[Line]) -> list[Line]:
    """Returns the figures that two runs of one recipe share, however often interrupted: all but the clock."""
    return [
        {key: value for key, value in line.items() if key not in CLOCK}
        for line in lines
        if line["kind"] in ("step", "evaluation", "skipped")
    ]


def read_milestones(path: Path) -> Iterator[Line]:
    """Yields the last step and every line of another kind: what a list of runs needs of a long log."""
    beginning = b'{"kind": "step",'
    pieces = read_bytes(path).split(b"\n")[:-1]
    last = next((i for i in reversed(range(len(pieces))) if pieces[i].startswith(beginning)), None)
    for i, piece in enumerate(pieces):
        if (i == last or not piece.startswith(beginning)) and (entry := parse_line(piece)) is not None:
            yield entry


def parse_line(piece: bytes) -> Line | None:
    """Returns a line of ours, an object that says its kind and whose step is a number; None for any other."""
    try:
        entry = json.loads(piece)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str):
        return None
    step = entry.get("step", 0)
    return entry if isinstance(step, int) and abs(step) < 1 << 53 else None


# ---- for TensorBoard: `tensorboard --logdir runs`. Extra: `track`


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

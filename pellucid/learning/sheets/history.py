"""The learner's record: what was practised, how it went, and which skill is due again.

One JSON line per marked sheet or read lesson, in $PELLUCID_HOME/learner.jsonl or in the user's data folder:

    {"time": "2026-01-31T12:00:00+00:00", "sheet": {"title", "lesson", "level", "seed"},
     "skills": [{"op": "softmax", "phase": "fwd", "verdicts": {"right": 4, "wrong": 1}, "mistakes": {},
                 "peeks": 0}]}

A skill is an operation in a phase. It is due 1, 2, 4, 8 … days after its last right sheet, and at once after
a wrong one. A line is appended in one write under a lock; a line that a killed process left incomplete is
ignored.
"""

import contextlib
import fcntl
import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pellucid.base.errors import FileError, ResourceError, file_errors
from pellucid.base.files import find_user_folder, make_folders, read_bytes
from pellucid.learning.sheets.mark import Grade, MarkedBox, Marking

LARGEST = 100_000_000
"""The most bytes of a record that are read; a sheet adds a few hundred."""
LONGEST_INTERVAL = 10
"""The exponent at which an interval stops to grow: 2¹⁰ days."""
DAY = timedelta(days=1)


OPERATION_WORDS = {"einsum": "sums of products", "add": "addition", "subtract": "subtraction", "relu": "ReLU"}
PHASE_WORDS = {"fwd": "forward", "bwd": "backward", "upd": "update"}


class Skill(NamedTuple):
    """An operation in a phase: `softmax` in `fwd`, for a reader "softmax (forward)"."""

    op: str
    phase: str

    def __str__(self) -> str:
        op = self.op.removesuffix("_back")
        name = OPERATION_WORDS.get(op, op.replace("_", " "))
        return f"{name} ({PHASE_WORDS.get(self.phase, self.phase)})"


@dataclass(frozen=True)
class Practice:
    """What one entry of the record says of a skill: how many boxes got each verdict, which mistakes were
    made, and how many numbers were uncovered without a prediction."""

    verdicts: Mapping[str, int] = field(default_factory=dict)
    mistakes: Mapping[str, int] = field(default_factory=dict)
    peeks: int = 0

    def count(self, *grades: Grade) -> int:
        """Returns how many boxes got one of these verdicts."""
        return sum(self.verdicts.get(grade, 0) for grade in grades)

    @property
    def right(self) -> int:
        return self.count(Grade.RIGHT, Grade.FROM_YOURS, Grade.ROUNDING)

    @property
    def wrong(self) -> int:
        return self.count(Grade.WRONG)

    @property
    def asked(self) -> int:
        return sum(self.verdicts.values())


@dataclass(frozen=True)
class RecordEntry:
    """One line of the record. A lesson that was read has no level."""

    time: datetime
    title: str
    lesson: int | None
    level: int | None
    seed: int
    skills: Mapping[Skill, Practice]

    @property
    def right(self) -> int:
        return sum(practice.right for practice in self.skills.values())

    @property
    def asked(self) -> int:
        return sum(practice.asked for practice in self.skills.values())


@dataclass(frozen=True)
class Progress:
    """How far a learner is with a lesson: for each level the boxes right and asked in the best sheet."""

    best: Mapping[int, tuple[int, int]]
    sheets: int
    peeks: int

    def is_done(self, level: int) -> bool:
        """Tests whether a sheet of this level was right in every box."""
        right, asked = self.best.get(level, (0, 0))
        return 0 < asked == right

    @property
    def is_finished(self) -> bool:
        """Returns whether a sheet was right in which every box is open: level 2, or 3 with another model."""
        return self.is_done(2) or self.is_done(3)


@dataclass(frozen=True)
class Record:
    """The entries of a learner, the oldest first."""

    entries: tuple[RecordEntry, ...] = ()

    def due_times(self) -> dict[Skill, datetime]:
        """Returns when each practised skill is due again.

        Right sheets on one day lengthen the interval once; a wrong one makes the skill due at that time and
        begins again.
        """
        due: dict[Skill, datetime] = {}
        streaks: Counter[Skill] = Counter()
        lengthened: dict[Skill, datetime] = {}
        for entry in self.entries:
            for skill, practice in entry.skills.items():
                if practice.wrong:
                    due[skill], streaks[skill] = entry.time, 0
                elif practice.right:
                    if not streaks[skill] or entry.time - lengthened[skill] >= DAY:
                        streaks[skill] = min(streaks[skill] + 1, LONGEST_INTERVAL)
                        lengthened[skill] = entry.time
                    due[skill] = entry.time + 2 ** (streaks[skill] - 1) * DAY
        return due

    def due(self, now: datetime | None = None) -> list[Skill]:
        """Returns the skills that are due, the longest overdue first."""
        times, now = self.due_times(), now or datetime.now(UTC)
        return sorted((skill for skill in times if times[skill] <= now), key=times.__getitem__)

    def progress(self, lesson: int) -> Progress:
        """Returns how far the learner is with a lesson."""
        best: dict[int, tuple[int, int]] = {}
        sheets = peeks = 0
        for entry in self.entries:
            if entry.lesson != lesson:
                continue
            peeks += sum(practice.peeks for practice in entry.skills.values())
            if entry.level is not None:
                sheets += 1
                result = (entry.right, entry.asked)
                best[entry.level] = max(best.get(entry.level, (0, 1)), result, key=_share)
        return Progress(best, sheets, peeks)


def _share(result: tuple[int, int]) -> float:
    right, asked = result
    return right / max(asked, 1)


# ---- the file


def record_path() -> Path:
    """Returns the record's path: in $PELLUCID_HOME, or in the user's data folder."""
    return find_user_folder("data") / "learner.jsonl"


def read_record(path: Path | None = None) -> Record:
    """Returns the learner's record, an empty one where there is none. Lines that are not entries are ignored:
    a process was killed while it wrote, or a newer version has other ones."""
    path = path or record_path()
    if not os.path.lexists(path):
        return Record()
    lines = read_bytes(path, LARGEST).split(b"\n")
    entries = (_read_entry(line) for line in lines if line.strip())
    return Record(tuple(entry for entry in entries if entry is not None))


def append_entry(entry: RecordEntry, path: Path | None = None) -> None:
    """Appends an entry to the record, in one write that is on the disk when this returns."""
    path = path or record_path()
    line = json.dumps(_entry_data(entry), ensure_ascii=True).encode() + b"\n"
    make_folders(path.parent)
    with file_errors("write", path):
        # Not blocking: opening a pipe that nothing reads would wait for ever.
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise FileError(f"cannot write {path}: it is not a file.")
            with contextlib.suppress(OSError):  # a disk without locks
                fcntl.flock(handle, fcntl.LOCK_EX)
            _append_line(handle, path, line)
            os.fsync(handle)
        finally:
            os.close(handle)


def _append_line(handle: int, path: Path, line: bytes) -> None:
    size = os.fstat(handle).st_size
    if size and os.pread(handle, 1, size - 1) != b"\n":  # a process was killed in its write
        line = b"\n" + line
    written = 0
    try:
        written = os.write(handle, line)
    finally:
        if written < len(line):
            os.ftruncate(handle, size)
    if written < len(line):
        raise ResourceError(f"cannot write {path}: no space is left for {len(line):,} bytes.")


def record_marking(
    marking: Marking,
    tried: Iterable[MarkedBox] = (),
    peeked: Iterable[MarkedBox] = (),
    path: Path | None = None,
) -> None:
    """Appends what a marked sheet says of each skill; nothing where no box was answered. `tried` are wrong
    answers that were corrected since, `peeked` boxes whose value was shown."""
    entry = make_entry(marking, tried, peeked)
    if any(marked.grade is not Grade.OPEN for marked in marking.boxes):
        append_entry(entry, path)


def make_entry(
    marking: Marking,
    tried: Iterable[MarkedBox] = (),
    peeked: Iterable[MarkedBox] = (),
    time: datetime | None = None,
) -> RecordEntry:
    """Returns the entry of a marked sheet."""
    verdicts: dict[Skill, Counter[str]] = {}
    for marked in marking.boxes:
        verdicts.setdefault(_skill_of(marked), Counter())[str(marked.grade)] += 1
    mistakes: dict[Skill, Counter[str]] = {skill: Counter() for skill in verdicts}
    wrong = {(marked.box.key, marked.text): marked for marked in (*marking.boxes, *tried)}
    for marked in wrong.values():
        mistakes[_skill_of(marked)].update([*dict.fromkeys(found.name for found in marked.mistakes)])
    peeks = Counter(map(_skill_of, peeked))
    skills = {
        skill: Practice(dict(verdicts[skill]), dict(mistakes[skill]), peeks[skill]) for skill in verdicts
    }
    sheet = marking.sheet
    return RecordEntry(time or _now(), sheet.title, sheet.lesson, sheet.level, sheet.seed, skills)


def _skill_of(marked: MarkedBox) -> Skill:
    return Skill(marked.box.op, marked.box.phase)


def record_peeks(lesson: int, title: str, peeked: Iterable[Skill], path: Path | None = None) -> None:
    """Appends which skills' numbers were uncovered without a prediction while a lesson was read."""
    skills = {skill: Practice(peeks=count) for skill, count in Counter(peeked).items()}
    if skills:
        append_entry(RecordEntry(_now(), title, lesson, None, 0, skills), path)


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _entry_data(entry: RecordEntry) -> dict[str, Any]:
    return {
        "time": entry.time.isoformat(),
        "sheet": {"title": entry.title, "lesson": entry.lesson, "level": entry.level, "seed": entry.seed},
        "skills": [
            {
                "op": skill.op,
                "phase": skill.phase,
                "verdicts": dict(practice.verdicts),
                "mistakes": dict(practice.mistakes),
                "peeks": practice.peeks,
            }
            for skill, practice in entry.skills.items()
        ],
    }


def _read_entry(line: bytes) -> RecordEntry | None:
    try:
        data = json.loads(line)
        time = datetime.fromisoformat(data["time"])
        sheet = data["sheet"]
        skills = {
            Skill(_text(one["op"]), _text(one["phase"])): Practice(
                _counts(one["verdicts"]), _counts(one["mistakes"]), _count(one["peeks"])
            )
            for one in data["skills"]
        }
        return RecordEntry(
            time if time.tzinfo else time.replace(tzinfo=UTC),
            _text(sheet["title"]),
            None if sheet["lesson"] is None else _count(sheet["lesson"]),
            None if sheet["level"] is None else _count(sheet["level"]),
            _count(sheet["seed"]),
            skills,
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError
    return value


def _counts(value: object) -> dict[str, int]:
    if not isinstance(value, dict):
        raise TypeError
    return {_text(name): _count(count) for name, count in value.items()}

"""One mutation, in a process of its own: what it changes, and what finds it.

    python -m tests.faults.drawn.run NUMBER                     # of the kept list, or of another one
    python -m tests.faults.drawn.run NUMBER --list FILE.tsv --report FILE --prepared FOLDER

Each stage is a line of the report, written at once: the process of a mutation may die or not end.
"""

import argparse
import contextlib
import json
import logging
import os
import pickle
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from tests.faults.drawn import kept
from tests.faults.drawn.mutation import Mutation
from tests.faults.drawn.planted import NotCompiled, build_native, plant

BATTERY_SECONDS, CHECKS_SECONDS = 60, 120
"""Of the processor, that the two stages may take; without a mutation they take 10 and 40."""
HEALTHY, SUBJECTS = "healthy.pickle", "subjects"
"""The figures without a mutation, and the folder of what the subjects read."""
MEMORY = 24 * 2**30
"""Bytes that a process may map."""


def run_mutation(mutation: Mutation, prepared: Path, folder: Path, report: "Report") -> None:
    """Plants a mutation, runs the battery and the checks, and reports each stage."""
    try:
        plant(mutation, folder)
    except NotCompiled as error:
        report(outcome="no program", effect=str(error))
        return
    report(stage="battery")
    quieten()
    try:
        from tests.faults.drawn import battery, figures

        got = battery.run_battery(link_subjects(prepared, folder))
    except Exception as error:  # the package cannot even be imported
        report_error(mutation, error, report)
        return
    healthy = pickle.loads((prepared / HEALTHY).read_bytes())
    changes = figures.find_changes(healthy, got)
    if not changes:
        report(outcome="no effect")
        return
    raised = {one.partition("/")[0]: str(got[one][0]) for one in changes if is_error(got.get(one))}
    subjects = [*dict.fromkeys(one.partition("/")[0] for one in changes)]
    name, change = next(iter(changes.items()))
    effect = raised.get(subjects[0], f"{name}: {change}")
    report(stage="checks", changed=len(changes), effect=effect, raised=next(iter(raised.values()), ""))
    allow_seconds(CHECKS_SECONDS)
    from tests.faults.drawn.judge import judge

    found = judge(mutation.file, subjects, raised, folder)
    outcome = "at its name" if found.is_own else "elsewhere" if found.by else "missed"
    report(outcome=outcome, found=found.by)


def report_error(mutation: Mutation, error: Exception, report: "Report") -> None:
    """Reports a package that cannot be imported: the traceback names the file."""
    import traceback

    frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    is_named = any(frame.endswith(mutation.file) for frame in frames)
    what = f"raised {type(error).__name__} at import: {error}"
    report(outcome="at its name" if is_named else "elsewhere", effect=what, raised=what, found=what)


def is_error(values: Any) -> bool:
    return bool(values) and isinstance(values[0], str) and values[0].startswith("raised ")


def link_subjects(prepared: Path, folder: Path) -> Path:
    """Links what the subjects read into the folder, where runs are then trained."""
    for path in (prepared / SUBJECTS).iterdir():
        (folder / path.name).symlink_to(path.resolve())
    return folder


def prepare(folder: Path) -> None:
    """Writes the subjects, the healthy library and the healthy figures, for all mutations of a call."""
    library = build_native(folder)
    os.environ["PELLUCID_NATIVE"] = str(library)
    quieten()
    from tests.faults.drawn import battery, tiny

    tiny.prepare(folder / SUBJECTS)
    with tempfile.TemporaryDirectory() as work:
        healthy = battery.run_battery(link_subjects(folder, Path(work)))
    raised = {name: values for name, values in healthy.items() if is_error(values)}
    assert not raised, raised
    (folder / HEALTHY).write_bytes(pickle.dumps(healthy))
    print(library)


def quieten() -> None:
    """One thread; no message, and no file that is brought to the disk before the next."""
    import torch

    torch.set_num_threads(1)
    logging.disable()
    warnings.simplefilter("ignore")
    os.fsync = lambda _: None  # type: ignore[assignment]


def allow_seconds(seconds: int) -> None:
    """Lets this process compute for so many more seconds before the system ends it."""
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    resource.setrlimit(resource.RLIMIT_CPU, (int(used) + seconds, resource.RLIM_INFINITY))


class Report:
    """Writes stages, one line of JSON each, at once."""

    def __init__(self, path: str | None) -> None:
        self.path, self.began = path, time.process_time()

    def __call__(self, **facts: Any) -> None:
        line = json.dumps({**facts, "cpu": round(time.process_time() - self.began, 1)})
        with open(self.path, "a") if self.path else contextlib.nullcontext(sys.stdout) as file:
            file.write(line + "\n")
            file.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("number", type=int, help="of the mutation; 0 prepares --prepared")
    parser.add_argument("--list", type=Path, default=kept.FILE)
    parser.add_argument("--report")
    parser.add_argument("--prepared", type=Path)
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))
    with tempfile.TemporaryDirectory() as work:
        os.environ["PELLUCID_HOME"] = str(Path(work) / "home")
        if asked.number == 0:
            prepare(asked.prepared)
            return
        allow_seconds(BATTERY_SECONDS)
        mutation = next(one for one in kept.read(asked.list) if one.number == asked.number)
        prepared = asked.prepared
        if prepared is None:
            from tests.faults.drawn.table import prepare_subjects

            prepared = Path(work) / "prepared"
            prepared.mkdir()
            os.environ["PELLUCID_NATIVE"] = prepare_subjects(prepared)
        folder = Path(work) / "own"
        folder.mkdir()
        run_mutation(mutation, prepared, folder, Report(asked.report))


if __name__ == "__main__":
    main()

"""What `verify` finds of a mutation, on the tiny models and runs whose figures it changed."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pellucid
from pellucid.verification.checks.catalogue import select_checks
from pellucid.verification.checks.check import Subject
from pellucid.verification.checks.training.run_subject import RunSubject
from pellucid.verification.checks.training.runs import CHECKS as RUN_CHECKS
from pellucid.verification.verdict import Finding
from tests.faults.drawn.battery import describe_error
from tests.faults.drawn.own_checks import is_own, list_own
from tests.faults.drawn.tiny import RUNS, TinyModel, open_tiny
from tests.faults.fault import FOUND

MOST_MODELS, MOST_RUNS = 2, 3
"""That are verified: the first ones whose figures changed."""
OMITTED = frozenset({"compiled"})
"""A check that takes a minute."""


class Caught(NamedTuple):
    is_own: bool
    by: str
    """The check and the place; "" where nothing was found."""


def judge(file: str, changed: list[str], raised: Mapping[str, str], folder: Path) -> Caught:
    """Returns what was found at the name of the mutation, else what was found first. The checks that are for
    the file run first, and the others where they find nothing. `raised` says of a subject what it raised: a
    run that cannot be trained is seen by whoever trains it."""
    first: Caught | None = None
    for found in find(file, changed, raised, folder, is_own_turn=True):
        if found.is_own:
            return found
        first = first or found
    return first or next(find(file, changed, raised, folder, is_own_turn=False), Caught(False, ""))


def find(
    file: str, changed: list[str], raised: Mapping[str, str], folder: Path, *, is_own_turn: bool
) -> Iterator[Caught]:
    """Yields what the checks that are for the file find, or what the others do."""
    models = [name for name in TinyModel.ALL if name in changed][:MOST_MODELS]
    runs = [name for name in RUNS if name in changed][:MOST_RUNS]
    own = list_own(file)
    for name in models:
        yield from _verify_model(file, name, folder, own, is_own_turn)
    for name in runs:
        yield from _verify_run(file, folder / "runs" / name, own, is_own_turn, raised.get(name))
    runs = [name for name in runs if name not in raised]
    if runs and not models:
        yield from _verify_model(file, runs[0], folder, own, is_own_turn)


def _verify_run(
    file: str, path: Path, own: frozenset[str], is_own_turn: bool, raised: str | None
) -> Iterator[Caught]:
    try:
        subject = RunSubject(path)
        for check in RUN_CHECKS:
            if (check.name in own) == is_own_turn:
                yield from _read(file, check.run(subject))
    except Exception as error:
        if raised is None:
            yield read_error(file, describe_error(error))
    if raised is not None:
        yield read_error(file, raised)


def _verify_model(
    file: str, name: str, folder: Path, own: frozenset[str], is_own_turn: bool
) -> Iterator[Caught]:
    checks = [
        one for one in select_checks(False) if one.name not in OMITTED and (one.name in own) == is_own_turn
    ]
    try:
        model = open_tiny(folder, name) if name in TinyModel.ALL else pellucid.load(folder / "runs" / name)
        subject = Subject(model)
    except Exception as error:
        yield read_error(file, describe_error(error))
        return
    for check in checks:
        yield from _read(file, check.run(subject))


def _read(file: str, finding: Finding) -> Iterator[Caught]:
    if finding.verdict in FOUND:
        yield Caught(is_own(file, finding), f"{finding.name} at {finding.at or finding.measured}")


def read_error(file: str, described: str) -> Caught:
    """Returns an error as a finding: it names the mutation where the file is one that it was raised in."""
    return Caught(file.removeprefix("pellucid/") in described, described)

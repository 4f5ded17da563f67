"""Checks the files of a run, its checkpoints and its models against the checksums beside them; and that a
checkpoint holds all that its run goes on from: training from it, without the evaluations between, reaches the
bits of the next checkpoint."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from pellucid.base.errors import FileError
from pellucid.base.formatting import pluralize
from pellucid.data.rows import Rows
from pellucid.formats.checkpoint_manifest import BEST, MODEL, checkpoint_name, measure, parse_step
from pellucid.training.events import Stepped
from pellucid.training.saving import checkpoint, rng
from pellucid.training.saving.checkpoint import Snapshot
from pellucid.training.saving.environment import compare_environments, get_environment
from pellucid.training.saving.published import read_origin
from pellucid.training.state import TrainState
from pellucid.training.step import train_step
from pellucid.verification.checks.training.run_subject import RunSubject, can_begin, find_unrestored
from pellucid.verification.checks.training.training_batch import copy_from_start
from pellucid.verification.verdict import Finding, Verdict


def measure_files(subject: RunSubject) -> Finding:
    """Hashes every file of the checkpoints and of the published models; names the first that was changed."""
    if subject.past.folder.read_status().state == "running":
        return Finding(Verdict.SKIPPED, "the run is under way, and replaces its files")
    folder, whole, skipped = subject.past.folder, 0, list[str]()
    most: int | None = None
    while True:
        found, why = folder.find_newest(most)
        skipped += why
        if found is None:
            break
        whole, most = whole + 1, (parse_step(found.name) or 0) - 1
    if skipped:
        message = "; ".join(dict.fromkeys(skipped))
        return Finding(
            Verdict.BUG, f"{pluralize(len(set(skipped)), 'checkpoint')} damaged", "checkpoints", message
        )
    models = 0
    for name in (MODEL, BEST):
        path = folder.path / name
        origin = read_origin(path) if path.is_dir() else None
        if origin is None:
            continue
        models += 1
        for file, entry in origin.files.items():
            if (changed := _find_change(path / file, entry)) is not None:
                message = (
                    f"{path / file} is not the file that the run wrote there at step {origin.step}: {changed}"
                )
                return Finding(Verdict.BUG, "another file", f"{name}/{file}", message)
    return Finding(Verdict.EQUAL, f"{pluralize(whole, 'checkpoint')}, {pluralize(models, 'model')}")


def _find_change(path: Path, entry: object) -> str | None:
    """Returns what is not as it was written; None where all is."""
    if not path.is_file():
        return "it is gone"
    if isinstance(entry, dict) and measure(path)["sha256"] != entry.get("sha256"):
        return "its checksum is another"
    return None


SECONDS, QUICK_SECONDS = 60.0, 5.0
"""The longest time, by the log, of the steps that are made once more."""
UNUSED = ("python", "python.gauss")
"""The generator that no step draws from: importing a library may, so that its state says nothing."""
CONSIDERED = 4
"""Checkpoints, the newest ones, of which two that follow each other are chosen."""
WALKED = 20_000
"""The most batches that are read to find the place in the data; where rows are numbered, none is."""
PLACE = "at."
"""The beginning of a key of the loader's state that is the place in the data."""
COUNTED = ("step", "tokens", "smoothed", "bad")
"""Meters that follow from the steps alone."""


class Interval(NamedTuple):
    """The steps from one checkpoint, or from the beginning of a run, to the next checkpoint."""

    start: int
    stop: int
    evaluations: int
    seconds: float


def find_intervals(subject: RunSubject) -> list[Interval]:
    """Returns the intervals between the newest intact checkpoints: first those with an evaluation, of these
    the shortest first."""
    past, most, steps = subject.past, None, list[int]()
    while len(steps) < CONSIDERED and (found := past.folder.find_newest(most)[0]) is not None:
        steps.append(parse_step(found.name) or 0)
        most = steps[-1] - 1
    if len(steps) < CONSIDERED and can_begin(past):
        steps.append(0)
    evaluated = [line["step"] for line in past.lines if line.get("kind") == "evaluation"]
    clock = {
        line["step"]: float(line.get("seconds") or 0.0) for line in past.lines if line.get("kind") == "step"
    }

    def make(start: int, stop: int) -> Interval:
        seconds = clock.get(stop, 0.0) - clock.get(start, 0.0)
        return Interval(start, stop, sum(start < step <= stop for step in evaluated), seconds)

    found_ones = [make(start, stop) for stop, start in itertools.pairwise(steps) if start < stop]
    return sorted(found_ones, key=lambda one: (not one.evaluations, one.seconds))


def measure_next_checkpoint(subject: RunSubject) -> Finding:
    """Restores a checkpoint, trains to the next one without evaluating, and compares all that both hold."""
    limit = QUICK_SECONDS if subject.quick else SECONDS
    intervals = find_intervals(subject)
    if not intervals:
        return Finding(Verdict.SKIPPED, "the run has no checkpoint that another one leads to")
    chosen = next((one for one in intervals if one.seconds <= limit), None)
    if chosen is None:
        least = min(one.seconds for one in intervals)
        why = f"{least:.0f} s lie between two of its checkpoints; up to {limit:g} s are trained once more"
        return Finding(Verdict.UNKNOWN, why)
    try:
        wanted = checkpoint.read(subject.past.folder.checkpoints / checkpoint_name(chosen.stop))
        with subject.past.open_state(chosen.start) as (state, snapshot, environment):
            if state.meters.step != chosen.start:
                return Finding(Verdict.SKIPPED, f"the checkpoint of step {chosen.start} is gone")
            return _replay(subject, chosen, state, snapshot, wanted, environment)
    except FileError as error:  # a run under way has just removed it
        return Finding(Verdict.SKIPPED, str(error))


def _replay(
    subject: RunSubject,
    chosen: Interval,
    state: TrainState,
    snapshot: Snapshot | None,
    wanted: Snapshot,
    environment: dict[str, object],
) -> Finding:
    if snapshot is not None and (found := _judge_restored(state, snapshot)):
        return found
    first = ""
    while state.meters.step < chosen.stop:
        event = train_step(state)
        logged = subject.past.find_logged(event.step).get("loss")
        if not first and isinstance(event, Stepped) and logged not in (None, event.loss):
            first = f"; the loss of step {event.step} is {event.loss!r}, and {logged!r} in the log"
    differences = compare_environments(environment, get_environment(state.compiled, state.device))
    if not state.is_deterministic:
        differences.append("on this device the run is not deterministic")
    if found := _judge_reached(state, wanted, chosen, not differences, first):
        return found
    if differences:
        return Finding(Verdict.UNKNOWN, f"its bits need not be the same here: {differences[0]}")
    tensors = len(wanted.weights) + len(wanted.trainable) + len(wanted.optimizer)
    measured = (
        f"{pluralize(chosen.stop - chosen.start, 'step')} to the checkpoint of step {chosen.stop}, without"
    )
    measured += f" {pluralize(chosen.evaluations, 'evaluation')}: {pluralize(tensors, 'tensor')}"
    return Finding(Verdict.EQUAL, measured)


def _judge_restored(state: TrainState, snapshot: Snapshot) -> Finding | None:
    """Returns a finding where the place in the data is not that of the steps made, or where a restored state
    has another place, other random numbers or another count than its checkpoint."""
    step, size = snapshot.step, state.loader.count
    place, due = _place(snapshot.loader), count_place(state.source.train, step, size)
    if due is not None and place != due:
        message = (
            f"the checkpoint of step {step} is at {_show(place)} of the data; {pluralize(step, 'step')} "
        )
        message += f"with {pluralize(size, 'row')} each lead to {_show(due)}"
        return Finding(Verdict.BUG, f"{_show(place)} for {_show(due)}", "loader", message)
    restored = _place(state.loader.state_dict())
    if restored != place:
        message = f"restored from the checkpoint of step {step}, which is at {_show(place)} of the data, the "
        message += f"loader is at {_show(restored)}"
        return Finding(Verdict.BUG, "not restored", "loader", message)
    if name := find_other_rng(snapshot.rng):
        message = f"the random generator {name} is not in the state of the checkpoint of step {step}"
        return Finding(Verdict.BUG, "not restored", f"rng.{name}", message)
    return _judge_counts(state, snapshot, f"restored from the checkpoint of step {step}")


def _judge_reached(
    state: TrainState, wanted: Snapshot, chosen: Interval, has_bits: bool, first: str
) -> Finding | None:
    """Returns a finding where the checkpoint that was reached has another place in the data, other counts or,
    where they do not depend on the machine, other bits."""
    since = f"trained from step {chosen.start}"
    if chosen.evaluations:
        since += f" without the {pluralize(chosen.evaluations, 'evaluation')} between"
    got, right = _place(wanted.loader), _place(state.loader.state_dict())
    if got != right:
        message = f"the checkpoint of step {chosen.stop} is at {_show(got)} of the data; {since}, it is "
        return Finding(Verdict.BUG, f"{_show(got)} for {_show(right)}", "loader", message + _show(right))
    if found := _judge_counts(state, wanted, since, COUNTED if has_bits else COUNTED[:2]):
        return found
    if not has_bits:
        return None
    if name := find_unrestored(state, wanted):
        message = f"{name} of the checkpoint of step {chosen.stop} has other bits, {since}{first}"
        return Finding(Verdict.BUG, "other bits", name, message)
    if name := find_other_rng({key: value for key, value in wanted.rng.items() if key not in UNUSED}):
        message = f"the random generator {name} is in another state at step {chosen.stop}, {since}"
        return Finding(Verdict.BUG, "other random numbers", f"rng.{name}", message)
    return None


def _judge_counts(
    state: TrainState, wanted: Snapshot, since: str, keys: tuple[str, ...] = COUNTED
) -> Finding | None:
    ours = state.meters.to_dict()
    for key in keys:
        if ours[key] != wanted.meters[key]:
            message = f"the checkpoint of step {wanted.step} has {key} {wanted.meters[key]}; {since}, it is "
            message += f"{ours[key]}"
            return Finding(Verdict.BUG, f"{wanted.meters[key]} for {ours[key]}", key, message)
    return None


# ---- the place in the data


def count_place(rows: Rows, batches: int, size: int) -> dict[str, int] | None:
    """Returns the place in the data after that many batches of `size` rows, from the beginning; None where
    finding it takes too long."""
    names = {*rows.state()}
    if names == {"row"}:
        return {"row": batches * size}
    if names == {"batch"}:
        return {"batch": batches}
    if batches > WALKED:
        return None
    reader = copy_from_start(rows)
    for _ in range(batches):
        reader.take(size, slice(0, 0))
    return reader.state()


def find_other_rng(saved: Mapping[str, Tensor]) -> str:
    """Returns the name of the first generator whose state is not the saved one; empty where all are."""
    ours = rng.get_rng_state()
    both = (name for name in ours if name in saved)
    return next((name for name in both if not torch.equal(ours[name], saved[name])), "")


def _place(loader: Mapping[str, int]) -> dict[str, int]:
    return {key.removeprefix(PLACE): at for key, at in loader.items() if key.startswith(PLACE)}


def _show(place: Mapping[str, int]) -> str:
    return ", ".join(f"{key} {at:,}" for key, at in place.items())

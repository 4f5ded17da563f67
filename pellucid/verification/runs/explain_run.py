"""A number of a training run: its step replayed bit for bit, and the update of one weight taken apart."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.base.errors import AddressError, UsageError
from pellucid.base.formatting import format_number
from pellucid.explanation.address import Address, parse
from pellucid.explanation.derive import Derivation, explain
from pellucid.explanation.table import Slice
from pellucid.explanation.trace import IN_PYTHON, More, Trace, format_tree
from pellucid.formats.checkpoint_manifest import parse_step
from pellucid.training.events import Skipped, Stepped
from pellucid.verification.runs.rebuild import PastRun
from pellucid.verification.verdict import Verdict

if TYPE_CHECKING:
    from pellucid.verification.runs.rebuilt_step import RebuiltStep

_NUMBERED = re.compile(r"\s*+(?P<name>[^\[\]\s@]++)@(?P<k>\d{1,15})\s*+(\[.*\])?\s*+", re.DOTALL)


@dataclass(frozen=True)
class RunNumber:
    """A number of a run, or a table of them, how it was computed, and how exactly it was replayed."""

    found: Derivation | Slice
    notes: tuple[str, ...]
    replay: dict[str, Any]

    @property
    def name(self) -> str:
        return self.found.name

    @property
    def is_bug(self) -> bool:
        """Returns whether a number of this update does not follow from the run's own numbers before it."""
        return self.replay.get("verdict") == Verdict.BUG

    def to_lines(self, digits: int = 5, more: More = IN_PYTHON) -> Iterator[str]:
        """Yields the number's own lines, then the notes."""
        yield from self.found.to_lines(digits, more)
        yield from self.notes

    def to_data(self) -> dict[str, Any]:
        """Returns the number's own data, with how it was replayed."""
        return self.found.to_data() | {"run": self.replay}

    def __str__(self) -> str:
        return "\n".join((str(self.found), *self.notes))


@dataclass(frozen=True)
class RunNames:
    """The names that a number of a run may have: its parameters, and how many updates it has."""

    folder: Path
    data: dict[str, Any]

    def to_data(self) -> dict[str, Any]:
        """Returns the names and what the run has of them, as plain data."""
        return self.data

    def to_lines(self, digits: int = 5, more: More = IN_PYTHON) -> Iterator[str]:
        """Yields how far the run came, and the names."""
        data = self.data
        updates = f"{data['updates']:,} of {data['steps']:,} updates"
        yield f"{self.folder}: {updates}, {data['optimizer']['kind']}"
        saved = ", ".join(f"{step:,}" for step in data["checkpoints"]) or "none"
        yield f"checkpoints, from which a replay begins: {saved}"
        yield "NAME@k is a parameter after k updates; NAME.m@k and NAME.v@k are the optimizer's moments;"
        yield "d.NAME@k, d.NAME.clipped@k, grad_norm@k and clip@k the gradient of update k. NAME is one of"
        yield from format_tree({name: tuple(shape) for name, shape in data["parameters"].items()})

    def __str__(self) -> str:
        return "\n".join(self.to_lines())


def explain_run(
    path: str | Path,
    at: str | None,
    depth: int,
    top: int,
    lines: int | None,
    raw_tokens: bool,
    progress: Callable[[int, int], None],
    flatten: bool = False,
) -> RunNumber | RunNames:
    """Returns where a number of a run came from; without an address, the names that it has.

    `progress` is called with the number of each replayed step, and of the last.
    """
    past = PastRun(str(path), raw_tokens)
    if at is None:
        return RunNames(past.folder.path, _names_data(past))
    name, k = _parse(past, at)
    parse(past.outline(name, k), at)  # a wrong address is refused before the work
    done = past.rebuild(k, (name,), progress)
    trace = done.trace(name)
    found, part = explain(trace, at, depth, top, lines or None, flatten), parse(trace, at)
    return RunNumber(found, tuple(_notes(done, trace, name, part)), _replay_data(done, trace, name, part))


def _parse(past: PastRun, at: str) -> tuple[str, int]:
    """Returns the parameter and the number of the update that an address names."""
    found = _NUMBERED.fullmatch(at)
    if found is None and re.search(r"@\d", at):
        raise AddressError(f"{at!r} cannot be read: of a run write NAME@k or NAME@k[i,j], both brackets.")
    if found is None:
        last = past.reached
        example = f"{past.parameters[0]}@{last}[0,0]"
        raise AddressError(
            f"{at!r} does not say after which update: of a run write NAME@k[i,j], for example {example}."
        )
    name, k = past.parameter(found["name"]), int(found["k"])
    past.check_step(k)
    if (why := past.why_frozen(name)) and found["name"] != name:
        raise UsageError(f"{name} did not learn ({why}), so there is no {found['name']}@{k}: ask {name}@{k}.")
    return name, k


# ---- how exact the replay is


def _notes(done: "RebuiltStep", trace: Trace, name: str, part: Address) -> Iterator[str]:
    yield ""
    if done.event is None:
        yield f"no update computed it: the run began with it (train.initialization, seed {done.recipe.seed})"
        return
    if done.updates[name].gradient is None:
        yield f"{name} did not learn: {done.why_frozen(name)}"
    elif isinstance(done.event, Skipped):
        about = f": {done.event.about}" if done.event.about else ""
        yield f"update {done.step} was skipped, and no weight was changed"
        yield f"{done.event.name} was not finite{about}"
    elif (own := done.get_recorded(name).get(part.name)) is not None:
        deviation = _deviation(own.value, trace.value(part.name), own.type, part)
        has = (
            f"has {format_number(deviation['own'], 9)} here" if part.cell is not None else "has these numbers"
        )
        far = "this is exactly that"
        if deviation["distance"]:
            most = "" if part.cell is not None else "at most "
            far = f"this is {most}{format_number(deviation['distance'], 2)} from that, "
            far += f"{format_number(deviation['last_places'], 2)} × its last place"
        who = "the run itself" if done.is_exact else "this replay, which is not the run to the bit,"
        yield f"{who} {has}, in {own.type}; {far}"
        yield from _verdict(done, name)
    yield from _describe_replay(done, name)


def _deviation(own: Any, ours: Any, type: str, part: Address) -> dict[str, float]:
    """Returns how far the run's own number is from the recomputed one, also in units of its last place; of
    several numbers, the largest such distance."""
    where = tuple(slice(None) if i is None else i for i in part.index)
    theirs = np.asarray(own)[where]
    apart = np.abs(theirs - ours[where])
    farthest = np.unravel_index(int(np.argmax(apart)), apart.shape)  # NaN is the farthest
    mine, distance = float(theirs[farthest]), float(apart[farthest])
    last = float(np.spacing(np.abs(np.asarray(mine).astype("float64" if type == "float64" else "float32"))))
    return {"own": mine, "distance": distance, "last_places": distance / last}


def _verdict(done: "RebuiltStep", name: str) -> Iterator[str]:
    if done.has_bfloat16_muon(name):
        yield "the run orthogonalized this matrix in bfloat16, so its new value has the rounding of that"
    judged = done.judge(name)
    if judged.bugs:
        yield from str(judged).splitlines()
        return
    worst = judged.worst
    most = "not one is off"
    if worst and worst.units:
        unit = f"times a replay in {worst.rerun_type}" if worst.rerun_type else "units of rounding"
        units, allowed = format_number(worst.units, 2), format_number(worst.allowed, 2)
        most = f"the worst is {units} {unit} off, {allowed} are allowed"
    yield f"{judged.verdict}: each number of this update follows from the run's own before it; {most}"


def _describe_replay(done: "RebuiltStep", name: str) -> Iterator[str]:
    start = f"the checkpoint of step {done.start}" if done.start else "the beginning of the run"
    if not done.is_exact:
        yield f"replayed from {start}, and not to the bit:"
        yield from (f"  {remark}" for remark in done.remarks)
        yield "  what the bits of a run depend on is in its checkpoints: torch, threads, processor"
    else:
        same = "the log skips this step as well"
        if isinstance(done.event, Stepped):
            same = f"loss, rate and gradient norm of step {done.step} are those of the log"
        yield f"replayed from {start}; {same if done.logged else 'the log has nothing of this step'}"
    if (as_saved := done.matches_checkpoint(name)) is not None:
        yield f"the checkpoint of step {done.step} holds {'the same bits' if as_saved else 'OTHER BITS'}"


def _replay_data(done: "RebuiltStep", trace: Trace, name: str, part: Address) -> dict[str, Any]:
    """Returns the same as plain data."""
    own = done.get_recorded(name).get(part.name) if done.event is not None else None
    data: dict[str, Any] = {"step": done.step, "replayed_from": done.start, "remarks": list(done.remarks)}
    data["exact"] = done.is_exact
    data["checkpoint_has_the_same_bits"] = done.matches_checkpoint(name)
    data["did_not_learn"] = done.why_frozen(name) or None
    data["skipped"] = None if isinstance(done.event, Stepped | None) else done.event.name
    if own is not None and isinstance(done.event, Stepped):
        data |= {"type": own.type, "verdict": done.judge(name).verdict}
        data |= _deviation(own.value, trace.value(part.name), own.type, part)
    return data


# ---- without an address


def _names_data(past: PastRun) -> dict[str, Any]:
    found = (parse_step(path.name) for path in past.folder.checkpoints.glob("step-*"))
    shapes = {name: list(shape) for name, shape in past.shapes.items()}
    saved = sorted(step for step in found if step is not None)
    return {
        "updates": past.reached, "steps": past.recipe.steps, "optimizer": past.recipe.optimizer.to_dict(),
        "checkpoints": saved, "parameters": shapes,
    }  # fmt: skip

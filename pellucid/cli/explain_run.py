"""`pellucid explain RUN`: where a number of a run came from, its step made again and taken apart."""

import re
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pellucid.errors import AddressError, UsageError

if TYPE_CHECKING:
    from pellucid.explain.address import Part
    from pellucid.explain.trace import Trace
    from pellucid.training.history.rebuild import PastRun
    from pellucid.training.history.rebuilt_step import RebuiltStep

_ASKED = re.compile(r"\s*(?P<name>[^\[\]\s@]+)@(?P<k>\d{1,15})\s*(\[.*\])?\s*", re.DOTALL)
PATIENCE = 2.0
"""Seconds after which a person is told how far a replay is, and again after as many."""


def explained(
    path: str, at: str | None, depth: int, top: int, digits: int, lines: int, json: bool, raw_tokens: bool
) -> tuple[Any, int | None]:
    """What to say of a number of a run, as lines or as data, and how many lines of it at most."""
    from pellucid.cli.explain import data_of, text_of
    from pellucid.explain.address import parse
    from pellucid.explain.derive import explain
    from pellucid.training.history.rebuild import PastRun

    past = PastRun(path, raw_tokens)
    if at is None:
        return (_names_data(past) if json else _names(past)), lines
    name, k = _asked(past, at)
    parse(past.outline(name, k), at)  # what is asked wrongly is told before the work
    done = past.rebuild(k, (name,), _Progress())
    trace = done.trace(name)
    found = explain(trace, at, depth, top, None if json else lines or None)
    part = parse(trace, at)
    if json:
        return data_of(found) | _run_data(done, trace, name, part), None
    return [*text_of(found, digits), *_notes(done, trace, name, part)], None


def _asked(past: "PastRun", at: str) -> tuple[str, int]:
    """The parameter, and the update."""
    found = _ASKED.fullmatch(at)
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


class _Progress:
    """A line on standard error now and then, where a replay takes its time."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def __call__(self, at: int, of: int) -> None:
        if time.monotonic() - self.last > PATIENCE and at < of:
            self.last = time.monotonic()
            print(f"making step {at:,} of {of:,} again …", file=sys.stderr, flush=True)


# ---- what is said of the replay


def _notes(done: "RebuiltStep", trace: "Trace", name: str, part: "Part") -> Iterator[str]:
    from pellucid.explain.expression import figure
    from pellucid.training.events import Skipped

    yield ""
    if done.event is None:
        yield f"no update made it: the run began with it (train.initialization, seed {done.recipe.seed})"
        return
    if done.updates[name].gradient is None:
        yield f"{name} did not learn: {done.why_frozen(name)}"
    elif isinstance(done.event, Skipped):
        about = f": {done.event.about}" if done.event.about else ""
        yield f"update {done.step} was skipped, and no weight was changed"
        yield f"{done.event.name} was not finite{about}"
    elif (own := done.recorded(name).get(part.name)) is not None:
        off = _off(own.value, trace.value(part.name), own.type, part)
        has = f"has {figure(off['own'], 9)} here" if part.cell is not None else "has these numbers"
        far = "this is exactly that"
        if off["distance"]:
            most = "" if part.cell is not None else "at most "
            far = f"this is {most}{figure(off['distance'], 2)} from that, "
            far += f"{figure(off['last_places'], 2)} × its last place"
        who = "the run itself" if done.is_exact else "this replay, which is not the run to the bit,"
        yield f"{who} {has}, in {own.type}; {far}"
        yield from _judgement(done, name)
    yield from _exactness(done, name)


def _off(own: Any, ours: Any, type: str, part: "Part") -> dict[str, float]:
    """How far the run's own number is from the recomputed one, also in units of its last place; of more than
    one number, where it is farthest."""
    import numpy as np

    where = tuple(slice(None) if i is None else i for i in part.index)
    theirs = np.asarray(own)[where]
    apart = np.abs(theirs - ours[where])
    farthest = np.unravel_index(int(np.argmax(apart)), apart.shape)  # NaN is the farthest
    mine, distance = float(theirs[farthest]), float(apart[farthest])
    last = float(np.spacing(np.abs(np.asarray(mine).astype("float64" if type == "float64" else "float32"))))
    return {"own": mine, "distance": distance, "last_places": distance / last}


def _judgement(done: "RebuiltStep", name: str) -> Iterator[str]:
    from pellucid.explain.expression import figure

    if done.has_bfloat16_muon(name):
        yield "the run turned this matrix in bfloat16, so that its new value is only so close to this"
    judged = done.judge(name)
    if judged.bugs:
        yield from str(judged).splitlines()
        return
    worst = judged.worst
    most = "not one is off"
    if worst and worst.units:
        unit = f"times a replay in {worst.rerun_type}" if worst.rerun_type else "units of rounding"
        most = f"the worst is {figure(worst.units, 2)} {unit} off, {figure(worst.allowed, 2)} are allowed"
    yield f"{judged.verdict}: each number of this update follows from the run's own before it; {most}"


def _exactness(done: "RebuiltStep", name: str) -> Iterator[str]:
    from pellucid.training.events import Stepped

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


def _run_data(done: "RebuiltStep", trace: "Trace", name: str, part: "Part") -> dict[str, Any]:
    """The same for programs."""
    from pellucid.training.events import Stepped

    own = done.recorded(name).get(part.name) if done.event is not None else None
    data: dict[str, Any] = {"step": done.step, "replayed_from": done.start, "remarks": list(done.remarks)}
    data["exact"] = done.is_exact
    data["checkpoint_has_the_same_bits"] = done.matches_checkpoint(name)
    data["did_not_learn"] = done.why_frozen(name) or None
    data["skipped"] = None if isinstance(done.event, Stepped | None) else done.event.name
    if own is not None and isinstance(done.event, Stepped):
        data |= {"type": own.type, "verdict": done.judge(name).verdict}
        data |= _off(own.value, trace.value(part.name), own.type, part)
    return {"run": data}


# ---- without an address


def _names(past: "PastRun") -> Iterator[str]:
    from pellucid.explain.overview import tree

    data = _names_data(past)
    made = f"{data['updates']:,} of {data['steps']:,} updates"
    yield f"{past.folder.path}: {made}, {past.recipe.optimizer.kind}"
    saved = ", ".join(f"{step:,}" for step in data["checkpoints"]) or "none"
    yield f"checkpoints, from which a replay begins: {saved}"
    yield "NAME@k is a parameter after k updates; NAME.m@k and NAME.v@k what the optimizer remembers;"
    yield "d.NAME@k, d.NAME.clipped@k, grad_norm@k and clip@k the gradient that update k used. NAME is one of"
    yield from tree(past.shapes)


def _names_data(past: "PastRun") -> dict[str, Any]:
    from pellucid.training.saving.manifest import parse_step

    found = (parse_step(path.name) for path in past.folder.checkpoints.glob("step-*"))
    shapes = {name: list(shape) for name, shape in past.shapes.items()}
    saved = sorted(step for step in found if step is not None)
    return {
        "updates": past.reached, "steps": past.recipe.steps, "optimizer": past.recipe.optimizer.to_dict(),
        "checkpoints": saved, "parameters": shapes,
    }  # fmt: skip

"""Checks a replayed step: its weights against the checkpoint, its loss and gradients against the
specification on the same batch, how those of a model in bfloat16 reach its float32 masters, and what it makes
of them: their norm, their clipping, and every update."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from pellucid.base.dtypes import BY_NAME, dtype_name
from pellucid.base.formatting import format_number, pluralize
from pellucid.base.names import IGNORE_INDEX
from pellucid.verification.checks.training.gradient_reference import GradientError
from pellucid.verification.checks.training.replayed_step import MicroBatch
from pellucid.verification.checks.training.run_subject import ReplayedStep, RunSubject
from pellucid.verification.run_report import format_apart
from pellucid.verification.runs.rebuilt_step import to_float64
from pellucid.verification.verdict import Finding, Verdict

SHOWN = 3
"""How many further gradients are listed by name."""
MIN_LOSSES = 2
"""The fewest losses that show a low precision: one may have few significant bits by chance, 1 in 65,536."""


def measure_weights(subject: RunSubject) -> Finding:
    """Compares the weights with which the step computes with those that the optimizer updates."""
    replay = subject.replay
    if name := replay.unrestored:
        message = f"{name} is not what the checkpoint of step {replay.start} holds"
        return Finding(Verdict.BUG, "not restored", name, message)
    recorder = replay.recorder
    for name, used in recorder.weights.items():
        master = recorder.trainable[name]
        right = to_float64(master.to(used.dtype))
        if not np.array_equal(to_float64(used), right, equal_nan=True):
            index = np.unravel_index(int(np.abs(to_float64(used) - right).argmax()), right.shape)
            at = f"{name}[{','.join(map(str, index))}]"
            got, wanted = format_apart(float(to_float64(used)[index]), float(right[index]))
            message = f"step {replay.step} computes with {at} = {got}; the optimizer has {wanted} there"
            return Finding(Verdict.BUG, "not the trained weights", name, message)
    since = f"the checkpoint of step {replay.start}" if replay.start else "the beginning of the run"
    return Finding(Verdict.EQUAL, f"{pluralize(len(recorder.weights), 'weight')}, from {since}")


def measure_loss(subject: RunSubject) -> Finding:
    """Compares the loss of the step with that of the specification, and with the log."""
    replay = subject.replay
    return _find_narrow_loss(replay) or subject.confirm(lambda: _judge_loss(subject, replay))


def _judge_loss(subject: RunSubject, replay: ReplayedStep) -> Finding:
    reference, got = subject.reference, subject.judged.loss
    wanted, allowed = reference.exact.loss, reference.loss_allowed
    error = abs(got - wanted)
    budget = f"{allowed:.2g}"
    if not error <= allowed:
        ours, right = format_apart(got, wanted)
        message = f"the loss of step {replay.step} is {ours}; the specification gives {right}"
        return Finding(Verdict.BUG, f"{error:.2g}", "loss", f"{message} ({subject.how})", allowed=budget)
    if found := _compare_logged(subject, replay, "loss", allowed):
        return found
    measured = f"{error:.1e} of {wanted:.5g}; {subject.how}"
    return Finding(Verdict.EQUAL if replay.dtype == "float64" else Verdict.NOISE, measured, allowed=budget)


def _find_narrow_loss(replay: ReplayedStep) -> Finding | None:
    """Returns a finding where each loss is a number of bfloat16, which has 8 significant bits."""
    losses = [
        micro.loss for micro in (*replay.earlier_micro_batches, *replay.micro_batches) if _counts(micro)
    ]
    losses = [loss for loss in losses if float(loss)]
    narrow = [loss for loss in losses if float(loss.bfloat16()) == float(loss)]
    if len(losses) < MIN_LOSSES or len(narrow) < len(losses):
        return None
    shown = ", ".join(repr(float(loss)) for loss in losses[:SHOWN])
    message = f"all {len(losses)} losses have 8 significant bits, as bfloat16 has: {shown}"
    return Finding(Verdict.LOW_PRECISION, "8 significant bits", "loss", message)


def _counts(micro: MicroBatch) -> bool:
    return bool((micro.rows.targets != IGNORE_INDEX).any())


def _compare_logged(subject: RunSubject, replay: ReplayedStep, key: str, allowed: float) -> Finding | None:
    """Returns a finding where the log has another figure of this step."""
    logged = subject.logged.get(key)
    got = float(getattr(replay.event, key))
    if logged is None or abs(got - logged) <= allowed:
        return None
    ours, theirs = format_apart(got, logged)
    message = (
        f"replayed from step {replay.start}, {key} of step {replay.step} is {ours}; the log has {theirs}"
    )
    return Finding(Verdict.BUG, f"{abs(got - logged):.2g} from the log", key, message)


def measure_gradients(subject: RunSubject) -> Finding:
    """Compares the gradient of every trainable parameter with the specification's, by error and by scale."""
    replay = subject.replay
    return subject.confirm(lambda: _judge_gradients(subject, replay))


def _judge_gradients(subject: RunSubject, replay: ReplayedStep) -> Finding:
    reference, grads = subject.reference, subject.judged.grads
    if reference.mismatch is not None:
        at = reference.mismatch.name
        message = f"the fast engine in float64 is not the specification: {reference.mismatch}"
        return Finding(Verdict.BUG, "the engines differ", f"d.{at}", message)
    names = subject.trainable
    found = {
        name: reference.compare(
            name, to_float64(grads[name]) if name in grads else np.zeros_like(reference.exact.grads[name])
        )
        for name in names
    }
    slope, slope_allowed = reference.common_slope(found)
    # in the order of the backward pass: a wrong gradient makes those after it wrong
    wrong = [found[name] for name in reversed(names) if found[name].used > 1]
    if wrong:
        return _describe_wrong(wrong, len(names), slope, subject.how, [n for n in names if n not in grads])
    if abs(slope - 1) > slope_allowed:
        message = f"all gradients together are {slope:.6g} times the right ones, ±{slope_allowed:.1g}"
        message += f" ({subject.how})"
        return Finding(Verdict.BUG, f"scale {slope:.5g}", f"d.{names[-1]}", message)
    worst = max(found.values(), key=lambda one: one.used)
    measured = (
        f"{worst.used:.0%} of the budget at d.{worst.name}, of {pluralize(len(names), 'gradient')}; their "
        f"common scale is {format_number(slope - 1, 2)} off, {slope_allowed:.1g} allowed; {subject.how}"
    )
    return Finding(Verdict.EQUAL if replay.dtype == "float64" else Verdict.NOISE, measured)


def _describe_wrong(
    wrong: Sequence[GradientError], count: int, slope: float, how: str, missing: Sequence[str]
) -> Finding:
    first, *others = wrong
    lines = [str(first)]
    if first.name in missing:
        lines = [f"d.{first.name}: it has no gradient, and the specification gives it one"]
    if others:
        names = ", ".join(f"d.{one.name}" for one in others[:SHOWN]) + (" …" if len(others) > SHOWN else "")
        lines.append(f"of {pluralize(count, 'gradient')}, {len(others)} more: {names}")
        lines.append(f"the scale of all gradients together is {slope:.6g}")
    lines.append(f"({how})")
    measured = f"{first.used:.2g} times the budget"
    return Finding(Verdict.BUG, measured, f"d.{first.name}", "\n".join(lines))


def measure_sums(subject: RunSubject) -> Finding:
    """Compares the gradients of the masters with the sum, in float32, of those of the micro-batches."""
    replay = subject.replay
    recorder = replay.recorder
    if not recorder.sums:
        return Finding(Verdict.SKIPPED, "its weights are not in bfloat16, so it has no masters")
    parts = f"{recorder.micro_batches} micro-batch{'es' * (recorder.micro_batches != 1)}"
    for name, wanted in recorder.sums.items():
        got = recorder.grads.get(name)
        if got is None or not torch.equal(got, wanted):
            different = torch.zeros_like(wanted) if got is None else (got.double() - wanted.double()).abs()
            at = int(different.argmax())
            ours, right = format_apart(
                0.0 if got is None else float(got.flatten()[at]), float(wanted.flatten()[at])
            )
            message = f"a gradient of {name} that the optimizer gets is {ours}; those of "
            message += f"{parts} add up to {right} in float32"
            return Finding(Verdict.BUG, f"{ours} for {right}", f"d.{name}", message)
    return Finding(Verdict.EQUAL, f"{pluralize(len(recorder.sums), 'gradient')} of {parts}")


LOGGED_NORM = {"float64": 1e-9, "float32": 1e-4, "bfloat16": 1e-2}
"""How far the replayed norm may be from the logged one, relatively: on a GPU sums vary in their order."""


def measure_norm(subject: RunSubject) -> Finding:
    """Compares the gradient norm of the step with that of all recorded gradients, and with the log."""
    replay = subject.replay
    norms = replay.rebuilt.grad_norms
    got, wanted, allowed = replay.event.grad_norm, math.hypot(*norms.values()), _norm_error(replay)
    error = abs(got - wanted)
    if not error <= allowed * wanted:
        ours, right = format_apart(got, wanted)
        message = f"the gradient norm of step {replay.step} is {ours}; that of all its gradients is {right}"
        message += _explain_norm(subject, replay, got, norms)
        return Finding(Verdict.BUG, f"{error / (wanted or 1):.2g} of the norm", "grad_norm", message)
    logged = subject.logged.get("grad_norm")
    if logged is not None and abs(got - logged) > LOGGED_NORM[replay.dtype] * wanted:
        ours, theirs = format_apart(got, logged)
        message = f"replayed from step {replay.start}, the norm of step {replay.step} is {ours}; "
        message += f"the log has {theirs}"
        return Finding(Verdict.BUG, f"{abs(got - logged):.2g} from the log", "grad_norm", message)
    measured = f"{error / (wanted or 1):.1e} of {wanted:.5g}, {pluralize(len(norms), 'gradient')}"
    return Finding(
        _verdict(replay), measured + "; the log has the same" * (logged is not None), allowed=f"{allowed:.1e}"
    )


def _verdict(replay: ReplayedStep) -> Verdict:
    return Verdict.EQUAL if replay.dtype == "float64" else Verdict.NOISE


def _norm_error(replay: ReplayedStep) -> float:
    """Returns the relative error that a sum of that many squares may have in the type of the gradients."""
    grads = replay.recorder.grads.values()
    roundoff = max(BY_NAME[dtype_name(grad.dtype)].roundoff for grad in grads)
    return (8 + math.sqrt(sum(grad.numel() for grad in grads))) * roundoff


def _explain_norm(subject: RunSubject, replay: ReplayedStep, got: float, norms: Mapping[str, float]) -> str:
    """Returns which gradient is missing in the norm, or what else it is the norm of."""
    wanted, allowed = math.hypot(*norms.values()), _norm_error(replay)
    clipped = math.hypot(*(float(grad.double().norm()) for grad in replay.recorder.clipped.values()))
    if abs(got - clipped) <= allowed * wanted:
        return ": it is the norm after clipping"
    rest = {name: math.sqrt(max(wanted**2 - norm**2, 0.0)) for name, norm in norms.items()}
    name = min(rest, key=lambda name: abs(got - rest[name]), default="")
    return f": that of all but d.{name}" if name and abs(got - rest[name]) <= allowed * wanted else ""


def measure_clipping(subject: RunSubject) -> Finding:
    """Compares every clipped gradient with the gradient times min(1, limit / norm)."""
    replay = subject.replay
    limit, norms = subject.past.recipe.train.clip, replay.rebuilt.grad_norms
    norm, allowed, worst = math.hypot(*norms.values()), _norm_error(replay), 0.0
    factor = min(1.0, limit / norm) if limit and norm else 1.0
    for name, grad in replay.recorder.grads.items():
        right, clipped = factor * to_float64(grad), to_float64(replay.recorder.clipped[name])
        error = float(np.abs(clipped - right).max(initial=0.0)) / (
            float(np.abs(right).max(initial=0.0)) or 1.0
        )
        if not error <= allowed:
            own = float(np.linalg.norm(clipped)) / (norms[name] or 1.0)
            message = (
                f"d.{name} is multiplied by {own:.6g}, and all gradients by min(1, {limit:g} / {norm:.6g}) = "
                f"{factor:.6g}"
            )
            return Finding(Verdict.BUG, f"factor {own:.5g} for {factor:.5g}", f"d.{name}.clipped", message)
        worst = max(worst, error)
    measured = f"{worst:.1e}, one factor of {factor:.5g} for {pluralize(len(norms), 'gradient')}"
    return Finding(_verdict(replay), measured, allowed=f"{allowed:.1e}")


def measure_update(subject: RunSubject) -> Finding:
    """Judges moments, decay, rate and average of every parameter, from the step's own clipped gradients."""
    replay = subject.replay
    recipe, k, rebuilt = subject.past.recipe, replay.step, replay.rebuilt
    rate = recipe.optimizer.lr * recipe.schedule.factor(k - 1, recipe.steps_at(k - 1))
    if not math.isclose(replay.event.lr, rate, rel_tol=1e-12):
        ours, right = format_apart(replay.event.lr, rate)
        message = (
            f"the learning rate of step {k} is {ours}; the {recipe.schedule.kind} schedule gives {right}"
        )
        return Finding(Verdict.BUG, f"{ours} for {right}", "lr", message)
    if untouched := [name for name in subject.trainable if name not in rebuilt.grad_norms]:
        message = f"{untouched[0]} is trained, and step {k} gave it no gradient"
        return Finding(Verdict.BUG, "not updated", untouched[0], message)
    worst = None
    for name, update in rebuilt.updates.items():
        if (due := _count_updates(subject, name)) not in (None, update.updates):
            message = (
                f"the optimizer counts {update.updates} updates of {name} before step {k}; there were {due}"
            )
            return Finding(Verdict.BUG, f"{update.updates} updates for {due}", f"{name}@{k}", message)
        report = rebuilt.judge(name)
        if report.bugs or report.different_weights:
            first = (report.bugs or report.different_weights)[0]
            return Finding(Verdict.BUG, first.used, first.name, str(report))
        if report.worst and (worst is None or report.worst.share > worst.share):
            worst = report.worst
    many = (
        f"{len(rebuilt.updates)} of {pluralize(len(subject.past.parameters), 'parameter')}, rate {rate:.4g}"
    )
    if worst is None or not worst.units:
        return Finding(Verdict.EQUAL, many)
    return Finding(_verdict(replay), f"{worst.used} at {worst.name}; {many}")


def _count_updates(subject: RunSubject, name: str) -> int | None:
    """Returns how many updates of a parameter came before the judged step, by which Adam corrects its bias;
    None where its rule does not count them, or the log does not say how many steps were skipped."""
    replay = subject.replay
    update, lines = replay.rebuilt.updates[name], subject.past.lines
    _, settings = subject.past.recipe.optimizer.rule(name, update.weight.shape, replay.step - 1)
    if update.gradient is None or "betas" not in settings or not lines:
        return None
    skipped = {line["step"] for line in lines if line.get("kind") == "skipped"}
    return replay.step - 1 - sum(bool(step < replay.step) for step in skipped)

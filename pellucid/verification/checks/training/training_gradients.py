"""Checks the weights, the loss and the gradients of a replayed step, against the checkpoint and against the
specification on the same batch."""

from collections.abc import Sequence

import numpy as np

from pellucid.base.formatting import format_number, pluralize
from pellucid.base.names import IGNORE_INDEX
from pellucid.verification.checks.training.gradient_reference import GradientError
from pellucid.verification.checks.training.replayed_step import MicroBatch
from pellucid.verification.checks.training.run_subject import NO_STEP, ReplayedStep, RunCheck, RunSubject
from pellucid.verification.run_report import format_apart
from pellucid.verification.runs.rebuilt_step import to_float64
from pellucid.verification.verdict import Finding, Verdict

SHOWN = 3
"""How many further gradients are listed by name."""
MIN_LOSSES = 2
"""The fewest losses that show a low precision: one may have few significant bits by chance, 1 in 65,536."""


def measure_weights(subject: RunSubject) -> Finding:
    """Compares the weights with which the step computes with those that the optimizer updates."""
    if (replay := subject.replay) is None:
        return Finding(Verdict.SKIPPED, NO_STEP)
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
    if (replay := subject.replay) is None:
        return Finding(Verdict.SKIPPED, NO_STEP)
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
    if (replay := subject.replay) is None:
        return Finding(Verdict.SKIPPED, NO_STEP)
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


CHECKS = (
    RunCheck(
        "step weights",
        "A step computes with the trained weights, and a run continues with those of its checkpoint.",
        "bit for bit",
        measure_weights,
        trusts="the files of the checkpoint, whose checksums are in its manifest",
    ),
    RunCheck(
        "step loss",
        "The loss of a step is that of the specification, the mean over all counted targets.",
        "8 times the error of the specification in the run's type",
        measure_loss,
        trusts="the batch, which another check judges; the specification shares no code with the step",
    ),
    RunCheck(
        "step gradients",
        "The gradient of every trained parameter is that of the specification, in direction and scale.",
        "8 times the error of the specification in the run's type; 5 times for the scale",
        measure_gradients,
        trusts="the batch, which another check judges; the specification shares no code with the step",
    ),
)

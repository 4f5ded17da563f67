"""Checks what a replayed step makes of its gradients: their norm, their clipping, and every update."""

import math
from collections.abc import Mapping

import numpy as np

from pellucid.base.dtypes import BY_NAME
from pellucid.base.formatting import pluralize
from pellucid.verification.checks.training.run_subject import NO_STEP, ReplayedStep, RunCheck, RunSubject
from pellucid.verification.run_report import format_apart
from pellucid.verification.runs.rebuilt_step import to_float64
from pellucid.verification.verdict import Finding, Verdict

LOGGED_NORM = {"float64": 1e-9, "float32": 1e-4, "bfloat16": 1e-2}
"""How far the replayed norm may be from the logged one, relatively: on a GPU sums vary in their order."""


def measure_norm(subject: RunSubject) -> Finding:
    """Compares the gradient norm of the step with that of all recorded gradients, and with the log."""
    if (replay := subject.replay) is None:
        return Finding(Verdict.SKIPPED, NO_STEP)
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
    roundoff = max(BY_NAME[str(grad.dtype).removeprefix("torch.")].roundoff for grad in grads)
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
    if (replay := subject.replay) is None:
        return Finding(Verdict.SKIPPED, NO_STEP)
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
    if (replay := subject.replay) is None:
        return Finding(Verdict.SKIPPED, NO_STEP)
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
    assert replay is not None
    update, lines = replay.rebuilt.updates[name], subject.past.lines
    _, settings = subject.past.recipe.optimizer.rule(name, update.weight.shape, replay.step - 1)
    if update.gradient is None or "betas" not in settings or not lines:
        return None
    skipped = {line["step"] for line in lines if line.get("kind") == "skipped"}
    return replay.step - 1 - sum(bool(step < replay.step) for step in skipped)


CHECKS = (
    RunCheck(
        "step norm",
        "The gradient norm of a step is that of all its gradients as one vector, and the log has it.",
        "(8 + √n) units of rounding",
        measure_norm,
        trusts="the recorded gradients, which another check judges",
    ),
    RunCheck(
        "step clipping",
        "Every gradient of a step is multiplied by one factor, min(1, limit / norm).",
        "(8 + √n) units of rounding",
        measure_clipping,
        trusts="the recorded gradients, which another check judges",
    ),
    RunCheck(
        "step update",
        "The update of every parameter is that of the optimizer's rule, with the scheduled rate.",
        "(8 + √n) units of Σ|terms|",
        measure_update,
        trusts="the clipped gradients, the recipe's schedule, and the specification's rule of the optimizer",
    ),
)

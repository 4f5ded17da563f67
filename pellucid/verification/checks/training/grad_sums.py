"""Checks how the gradients of a model in bfloat16 reach its float32 masters."""

import torch

from pellucid.base.formatting import pluralize
from pellucid.verification.checks.training.run_subject import NO_STEP, RunCheck, RunSubject
from pellucid.verification.run_report import format_apart
from pellucid.verification.verdict import Finding, Verdict


def measure_sums(subject: RunSubject) -> Finding:
    """Compares the gradients of the masters with the sum, in float32, of those of the micro-batches."""
    if (replay := subject.replay) is None:
        return Finding(Verdict.SKIPPED, NO_STEP)
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


CHECKS = (
    RunCheck(
        "step sums",
        "The gradient of a master weight is the float32 sum of the bfloat16 ones of all micro-batches.",
        "bit for bit",
        measure_sums,
        trusts="the gradients of each micro-batch, whose sum the check of the gradients judges",
    ),
)

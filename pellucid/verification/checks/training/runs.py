"""The checks of a training run: one of its steps, replayed from a checkpoint; the way to the next checkpoint;
the tokens that it reads; its evaluations and its log."""

from collections.abc import Callable
from pathlib import Path

from pellucid.base.errors import FileError
from pellucid.formats.checkpoint_manifest import MODEL
from pellucid.verification.checks.check import Check
from pellucid.verification.checks.training import (
    checkpoints,
    epoch_targets,
    run_log,
    training_batch,
    training_step,
)
from pellucid.verification.checks.training.run_subject import RunSubject
from pellucid.verification.verdict import Finding, Judged

CHECKS: tuple[Check[RunSubject], ...] = (
    Check("run files", "Every file of a checkpoint or of a model of the run is the one that the run wrote.",
          "byte for byte", checkpoints.measure_files,
          trusts="the checksums that the run wrote beside its files", judges=Judged.MODEL),
    Check("step batch",
          "Each counted target of a step is the id after its position, and every row is computed once.",
          "id for id", training_batch.measure_batch,
          trusts="the token files; the ids of a batch, of which one row is searched for in the files"),
    Check("step dropout",
          "Each dropout mask of a step drops the fraction that the recipe asks for, and scales the rest.",
          f"{training_batch.DEVIATIONS:g} standard deviations", training_batch.measure_dropout,
          trusts="a second forward pass, which draws the same numbers, for the masks of the step"),
    Check("step weights",
          "A step computes with the trained weights, and a run continues with those of its checkpoint.",
          "bit for bit", training_step.measure_weights,
          trusts="the files of the checkpoint, whose checksums are in its manifest"),
    Check("step loss", "The loss of a step is that of the specification, the mean over all counted targets.",
          "8 times the error of the specification in the run's type", training_step.measure_loss,
          trusts="the batch, which another check judges; the specification shares no code with the step"),
    Check("step gradients",
          "The gradient of every trained parameter is that of the specification, in direction and scale.",
          "8 times the error of the specification in the run's type; 5 times for the scale",
          training_step.measure_gradients,
          trusts="the batch, which another check judges; the specification shares no code with the step"),
    Check("step sums",
          "The gradient of a master weight is the float32 sum of the bfloat16 ones of all micro-batches.",
          "bit for bit", training_step.measure_sums,
          trusts="the gradients of each micro-batch, whose sum the check of the gradients judges"),
    Check("step norm",
          "The gradient norm of a step is that of all its gradients as one vector, and the log has it.",
          "(8 + √n) units of rounding", training_step.measure_norm,
          trusts="the recorded gradients, which another check judges"),
    Check("step clipping", "Every gradient of a step is multiplied by one factor, min(1, limit / norm).",
          "(8 + √n) units of rounding", training_step.measure_clipping,
          trusts="the recorded gradients, which another check judges"),
    Check("step update",
          "The update of every parameter is that of the optimizer's rule, with the scheduled rate.",
          "(8 + √n) units of Σ|terms|", training_step.measure_update,
          trusts="the clipped gradients, the recipe's schedule, and the specification's rule of the "
                 "optimizer"),
    Check("next checkpoint",
          "A checkpoint is all that its run goes on from: training reaches the next one, bit for bit.",
          "bit for bit", checkpoints.measure_next_checkpoint,
          trusts="a single step, which other checks judge; no evaluation is made, and the place is counted"),
    Check("epoch targets",
          "Each token of the training files is a target once in an epoch, after the token before it.",
          "each pair as often", epoch_targets.measure_epoch,
          trusts="the token files and the ends of documents that they state; nothing that finds rows in "
                 "them"),
    Check("validation rows",
          "The validation rows are the validation files, and each of their tokens is a target once.",
          "each pair as often", epoch_targets.measure_validation_rows,
          trusts="the token files, and which of them the manifest calls validation"),
    Check("validation loss",
          "The logged validation loss is that of the saved model in evaluation mode, and of the "
          "specification.",
          "2e-05", run_log.measure_validation_loss,
          trusts="the fast engine's logits, which the specification computes for some rows"),
    Check("log figures",
          "Every figure of the log is that of its formula: rate, smoothed loss, tokens, epoch, best, gap.",
          f"{run_log.EXACT:g}; {run_log.CLOCK:g} of what a clock measured", run_log.measure_log,
          trusts="the logged losses and clocks, the schedule of the recipe, and the entropy of generated "
                 "text"),
)  # fmt: skip
"""The files first, then in the order of a step; then what lies between checkpoints, the data, and the log."""


def verify_run(
    path: Path,
    step: int | None,
    quick: bool,
    before: Callable[[Check[RunSubject]], None],
    after: Callable[[Finding], None],
) -> list[Finding]:
    """Measures every claim about a run and returns the findings; nothing is written into its folder."""
    try:
        subject = RunSubject(path, step, quick)
    except FileError as error:
        raise FileError(f"{error} `pellucid verify {path / MODEL}` verifies its model alone.") from None
    findings = []
    for check in CHECKS:
        before(check)
        findings.append(check.run(subject))
        after(findings[-1])
    return findings

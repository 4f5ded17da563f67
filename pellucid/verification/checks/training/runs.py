"""The checks of a training run: one of its steps, replayed from a checkpoint; the way to the next checkpoint;
the tokens that it reads; its evaluations and its log."""

from collections.abc import Callable
from pathlib import Path

from pellucid.base.errors import FileError
from pellucid.formats.checkpoint_manifest import MODEL
from pellucid.verification.checks.training import (
    epoch_targets,
    grad_sums,
    log_figures,
    next_checkpoint,
    run_files,
    training_batch,
    training_gradients,
    training_update,
    validation_loss,
)
from pellucid.verification.checks.training.run_subject import RunCheck, RunSubject
from pellucid.verification.verdict import Finding

CHECKS: tuple[RunCheck, ...] = (
    *run_files.CHECKS,
    *training_batch.CHECKS,
    *training_gradients.CHECKS,
    *grad_sums.CHECKS,
    *training_update.CHECKS,
    *next_checkpoint.CHECKS,
    *epoch_targets.CHECKS,
    *validation_loss.CHECKS,
    *log_figures.CHECKS,
)
"""The files first, then in the order of a step; then what lies between checkpoints, the data, and the log."""


def verify_run(
    path: Path,
    step: int | None,
    quick: bool,
    before: Callable[[RunCheck], None],
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

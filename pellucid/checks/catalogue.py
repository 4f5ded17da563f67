"""`pellucid.verify`: every check of the catalogue, the nearest to the arithmetic first."""

import os
from collections.abc import Callable

from pellucid.arguments import check_bool
from pellucid.checks import (
    conventions,
    engines,
    equivalences,
    gradients,
    huggingface,
    int8_cache,
    llamacpp,
    saving,
    tokens,
    weights,
)
from pellucid.checks.check import Check, Subject
from pellucid.errors import UsageError
from pellucid.judge.verdict import Finding, Verdict, VerifyReport
from pellucid.workbench import Model, load

CHECKS: tuple[Check, ...] = (
    *weights.CHECKS,
    *engines.CHECKS,
    *equivalences.CHECKS,
    *int8_cache.CHECKS,
    *gradients.CHECKS,
    *saving.CHECKS,
    *tokens.CHECKS,
    *conventions.CHECKS,
    *huggingface.CHECKS,
    *llamacpp.CHECKS,
)


def verify(
    model: Model | str | os.PathLike[str],
    *,
    quick: bool = False,
    device: str | None = None,
    before: Callable[[Check], None] = lambda check: None,
    after: Callable[[Finding], None] = lambda finding: None,
) -> VerifyReport:
    """Measures a catalogue of claims about a model's numbers, and returns what was found.

    `model` is a loaded model or what `pellucid.load` takes; `device` is where the fast engine of a model that
    is loaded here runs. With `quick`, only the checks that take seconds are made. `before` and `after` are
    called for each check, to show progress.

    >>> from pellucid.checks.catalogue import verify
    >>> report = verify("abcd", quick=True)
    >>> bool(report), str(report["cached"].verdict)
    (True, 'equal')
    """
    if isinstance(model, Model) and device is not None:
        raise UsageError("device is for a model that is loaded here; a loaded model has its own.")
    subject = Subject(model if isinstance(model, Model) else load(model, device=device or "cpu"))
    subject.model.resolve_device()  # raises where the device cannot be used, before anything is measured
    findings: list[Finding] = []
    for check in (checks := select_checks(check_bool("quick", quick))):
        before(check)
        findings.append(check.run(subject))
        after(findings[-1])
        if check.required and findings[-1].verdict is Verdict.BUG:
            break
    return VerifyReport(tuple(findings), not_run=tuple(check.name for check in checks[len(findings) :]))


def select_checks(quick: bool) -> list[Check]:
    """Returns the checks that `verify` runs on a healthy model."""
    return [check for check in CHECKS if check.quick or not quick]

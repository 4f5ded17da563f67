"""`pellucid.verify`: every check of the catalogue, the nearest to the arithmetic first."""

import os
from collections.abc import Callable
from pathlib import Path

from pellucid.base.arguments import check_bool, check_function, check_int, check_text
from pellucid.base.errors import UsageError
from pellucid.explanation.probe.probe import encode_evidence
from pellucid.formats.resolve import is_run
from pellucid.model import Model, load
from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.checks.engine import (
    backward_paths,
    edited,
    engines,
    far_positions,
    gpu,
    gradients,
    int8_cache,
    native,
    native_far,
    paths,
    schedule,
    unequal_lengths,
)
from pellucid.verification.checks.files import conventions, file_weights, saving, weights
from pellucid.verification.checks.generation import (
    constrained,
    figures,
    generated,
    prefix_reuse,
    proposals,
    repeated,
    sampling,
    seeds,
)
from pellucid.verification.checks.outside import huggingface, llamacpp, prompts, tokens
from pellucid.verification.checks.training.run_subject import RunCheck
from pellucid.verification.checks.training.runs import verify_run
from pellucid.verification.verdict import Finding, Verdict, VerifyReport

CHECKS: tuple[Check, ...] = (
    *weights.CHECKS,
    *file_weights.CHECKS,
    *engines.CHECKS,
    *paths.CHECKS,
    *schedule.CHECKS,
    *unequal_lengths.CHECKS,
    *native.CHECKS,
    *native_far.CHECKS,
    *gpu.CHECKS,
    *edited.CHECKS,
    *far_positions.CHECKS,
    *int8_cache.CHECKS,
    *repeated.CHECKS,
    *generated.CHECKS,
    *sampling.CHECKS,
    *seeds.CHECKS,
    *figures.CHECKS,
    *proposals.CHECKS,
    *prefix_reuse.CHECKS,
    *constrained.CHECKS,
    *backward_paths.CHECKS,
    *gradients.CHECKS,
    *saving.CHECKS,
    *tokens.CHECKS,
    *prompts.CHECKS,
    *conventions.CHECKS,
    *huggingface.CHECKS,
    *llamacpp.CHECKS,
)


def verify(
    model: Model | str | os.PathLike[str],
    *,
    quick: bool = False,
    device: str | None = None,
    weights: str | None = None,
    step: int | None = None,
    text: str | None = None,
    before: Callable[[Check | RunCheck], None] = lambda check: None,
    after: Callable[[Finding], None] = lambda finding: None,
) -> VerifyReport:
    """Measures a catalogue of claims about a model's numbers, and returns what was found.

    `model` is a loaded model or what `pellucid.load` takes; `device` is where the fast engine of a model that
    is loaded here runs, and `weights` how it holds its matrices ("int8", "int4", "file"). With `quick`, only
    the checks that take seconds are made. `before` and `after` are called for each check, to show progress.

    `text` is one of the kind that the model was trained on, all of which is read under every other
    convention; by default it is English prose of ours.

    Of a run or its folder, one step is replayed and judged first, batch, loss, gradients and update, and the
    logged validation loss; then the newest model. `step` is the step to replay, by default one soon after a
    checkpoint.

    >>> from pellucid.verification.checks.catalogue import verify
    >>> report = verify("abcd", quick=True)
    >>> bool(report), str(report["specification"].verdict)
    (True, 'equal')
    """
    if isinstance(model, Model) and (device is not None or weights is not None):
        given = "device is" if weights is None else "weights is"
        raise UsageError(f"{given} for a model that is loaded here; a loaded model has its own.")
    for parameter, function in (("before", before), ("after", after)):
        check_function(parameter, function)
    if step is not None:
        step = check_int("step", step, least=0)
    opened = model if isinstance(model, Model) else load(model, device=device or "cpu", weights=weights)
    text = None if text is None else check_text("text", text)
    if text is not None and opened.pretrained.tokenizer is not None:  # refused before anything is measured
        encode_evidence(opened.pretrained.tokenizer, text)
    subject = Subject(opened, is_quick=quick, evidence=text)
    on = subject.model.resolve_device()  # raises where the device cannot be used, before anything is measured
    checks, of_run = select_checks(check_bool("quick", quick), on.type), list[Finding]()
    if not isinstance(model, Model) and is_run(Path(model)):
        of_run = verify_run(Path(model), step, quick, before, after)
    elif step is not None:
        raise UsageError(f"step={step} is for the folder of a run, one of whose steps is replayed: omit it.")
    findings: list[Finding] = []
    for check in checks:
        before(check)
        findings.append(check.run(subject))
        after(findings[-1])
        if check.required and findings[-1].verdict is Verdict.BUG:
            break
    not_run = tuple(check.name for check in checks[len(findings) :])
    return VerifyReport((*of_run, *findings), not_run=not_run)


def select_checks(quick: bool, device: str = "cpu") -> list[Check]:
    """Returns the checks that `verify` runs on a healthy model."""
    own = {"cpu": (*native.CHECKS, *native_far.CHECKS), "cuda": gpu.CHECKS}
    others = {check.name for kind, checks in own.items() if kind != device for check in checks}
    return [check for check in CHECKS if (check.quick or not quick) and check.name not in others]

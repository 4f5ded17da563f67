"""Every check in the order in which they are made: the nearest to the arithmetic first."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pellucid.checks import (
    conventions,
    engines,
    equivalences,
    huggingface,
    int8_cache,
    llamacpp,
    saving,
    tokens,
    weights,
)
from pellucid.checks import gradients as slopes
from pellucid.checks.finding import Check, Finding
from pellucid.checks.subject import Subject

CHECKS: tuple[Check, ...] = (
    *weights.CHECKS,
    *engines.CHECKS,
    *equivalences.CHECKS,
    *int8_cache.CHECKS,
    *slopes.CHECKS,
    *saving.CHECKS,
    *tokens.CHECKS,
    *conventions.CHECKS,
    *huggingface.CHECKS,
    *llamacpp.CHECKS,
)


@dataclass(frozen=True)
class Result:
    check: Check
    finding: Finding
    seconds: float


def verify(
    subject: Subject, quick: bool = False, begin: Callable[[Check], None] = lambda check: None
) -> Iterator[Result]:
    """Run the checks one by one, up to a required one that finds a bug; `begin` is called before each."""
    for check in select_checks(quick):
        begin(check)
        start = time.perf_counter()
        finding = check.measure(subject)
        yield Result(check, finding, time.perf_counter() - start)
        if check.required and finding.verdict == "BUG":
            return


def select_checks(quick: bool) -> list[Check]:
    """The checks that `verify` runs on a healthy model."""
    return [check for check in CHECKS if check.quick or not quick]

"""`pellucid verify`: whether a model's numbers can be trusted."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli.options import Device, Json, ModelName, Weights

if TYPE_CHECKING:
    from pellucid.checks.check import Check
    from pellucid.checks.training.run_subject import RunCheck
    from pellucid.judge.verdict import Finding

COLORS = {
    "EQUAL": "green",
    "NOISE": "cyan",
    "LOW_PRECISION": "bold red",
    "BUG": "bold red",
    "UNKNOWN": "yellow",
    "SKIPPED": "dim",
}
"""The color of each verdict, by its name in the enum `Verdict`, which is imported only when it is used."""


def verify(
    model: ModelName,
    quick: Annotated[bool, typer.Option("--quick", help="Only the checks that take seconds.")] = False,
    device: Device = "cpu",
    weights: Weights = None,
    step: Annotated[
        int | None,
        typer.Option(
            help="Of a run: the step to replay. By default one soon after a checkpoint.",
            metavar="K",
            min=1,
            max=10**15,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Measure a catalogue of claims about a model's numbers on this model.

    Of a run's folder, first one of its steps is replayed and judged: batch, loss, gradients, clipping, update
    and validation loss; then its newest model.

    equal: within the tolerance. noise: within what rounding explains. BUG: neither; the first wrong value is
    named. The exit code is 1 where there is a bug.
    """
    from pellucid.checks.catalogue import verify
    from pellucid.format import pluralize

    with _progress(json) as (before, after):
        report = verify(
            model, quick=quick, device=device, weights=weights, step=step, before=before, after=after
        )
    if not json:
        if report.not_run:
            print(f"skipped  {pluralize(len(report.not_run), 'check')}: the weights are not finite")
        print(f"\n{model}: {report.summary()}")
    if not report:
        raise typer.Exit(1)


@contextmanager
def _progress(
    json: bool,
) -> Iterator[tuple[Callable[["Check | RunCheck"], None], Callable[["Finding"], None]]]:
    """Yields what to do before a check (show its name beside a spinner) and after it (print the finding)."""
    if json:
        yield (lambda check: None), _print_json
        return
    from contextlib import nullcontext

    from rich.markup import escape

    from pellucid.cli.console import Console

    console = Console(highlight=False)
    status = console.status("") if sys.stdout.isatty() else None

    def before(check: "Check | RunCheck") -> None:
        if status:
            status.update(escape(f"{check.name}: {check.claim}"))

    def after(finding: "Finding") -> None:
        head, detail, *message = finding.lines()
        verdict, rest = head[:13], head[13:]
        console.print(f"[{COLORS[finding.verdict.name]}]{verdict}[/]{escape(rest)}", soft_wrap=True)
        console.print(detail, style="dim", soft_wrap=True, markup=False)
        for i, line in enumerate(message):
            console.print(line, style="" if i else "bold red", soft_wrap=True, markup=False)

    with status or nullcontext():
        yield before, after


def _print_json(finding: "Finding") -> None:
    from json import dumps

    print(dumps(finding.as_data(), ensure_ascii=False), flush=True)

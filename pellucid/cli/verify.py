"""`pellucid verify`: whether a model's numbers can be trusted."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.base.errors import UsageError
from pellucid.cli.options import Device, Json, OptionalModelName, Weights, read_text_option

if TYPE_CHECKING:
    from pellucid.cli.console import Console
    from pellucid.verification.checks.check import Check
    from pellucid.verification.verdict import Finding, VerifyReport

COLORS = {
    "EQUAL": "green",
    "RIGHT": "green",
    "NOISE": "cyan",
    "NO_BUG_SEEN": "cyan",
    "LOW_PRECISION": "bold red",
    "BUG": "bold red",
    "UNKNOWN": "yellow",
    "SKIPPED": "dim",
}
"""The color of each verdict, by its name in the enum `Verdict`, which is imported only when it is used."""


def verify(
    model: OptionalModelName = None,
    itself: Annotated[
        bool, typer.Option("--self", help="Verify this program, on models of its own; no MODEL.")
    ] = False,
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
    text: Annotated[
        str | None,
        typer.Option(help="A text of the kind that the model was trained on, or the file of it: FILE.txt."),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also what each check measured, its budget and its time.")
    ] = False,
    json: Json = False,
) -> None:
    """Measure a catalogue of claims about a model's numbers on this model.

    Of a run's folder, first one of its steps is replayed and judged: batch, loss, gradients, clipping, update
    and validation loss; then its newest model.

    equal: within the tolerance. noise: within what rounding explains. right: each other convention that a
    text can tell apart is worse on it. BUG: none of these; the first wrong value is named. cannot tell: with
    what would decide. The exit code is 1 where there is a bug; the conclusion
    says whether it is in your model or its files, in this machine or its build, or in this program.

    --self runs the checks of this program alone, on abcd and two models with random weights, in a minute.
    """
    _check_options(model, itself, weights=weights, step=step, text=text)
    read = read_text_option(text)
    with _progress(json) as (console, before, after):
        if model is None:
            from pellucid.verification.checks.itself import verify_self

            report = verify_self(quick=quick, device=device, before=before, after=after)
        else:
            from pellucid.verification.checks.catalogue import verify

            report = verify(
                model,
                quick=quick,
                device=device,
                weights=weights,
                step=step,
                text=read,
                before=before,
                after=after,
            )
    if console is not None:
        _print_report(console, model, report, verbose)
    if not report:
        raise typer.Exit(1)


def _check_options(model: str | None, itself: bool, **of_models: object) -> None:
    """Raises where there is not one thing to verify, or an option that it does not have."""
    if model is None and not itself:
        raise UsageError("give a MODEL to verify, or --self to verify this program.")
    given = [] if model is None else [model]
    given += [f"--{name}" for name, value in of_models.items() if value is not None]
    if itself and given:
        raise UsageError(f"--self verifies this program, on models of its own: omit {', '.join(given)}.")


def _print_report(console: "Console", model: str | None, report: "VerifyReport", is_verbose: bool) -> None:
    """Prints the conclusion and every check; of several models, the conclusion below them."""
    first, *more = report.lines(is_verbose)
    if model is None:
        _print(console, [*more, f"this program: {first}"])
        return
    lines = [f"{model}: {first}", *more]
    is_cut = console.is_terminal and len(lines) >= console.height  # the first line has left the screen
    _print(console, [*lines, lines[0]] if is_cut else lines)


Progress = tuple["Console | None", Callable[["Check[Any]"], None], Callable[["Finding"], None]]


@contextmanager
def _progress(json: bool) -> "Iterator[Progress]":
    """Yields where the report is printed, None for JSON, and what to do before a check and after it: its name
    stands beside a spinner while it runs."""
    if json:
        yield None, lambda check: None, _print_json
        return
    from contextlib import nullcontext

    from rich.markup import escape

    from pellucid.cli.console import Console

    console, done = Console(highlight=False), 0
    status = console.status("") if sys.stdout.isatty() else None

    def before(check: "Check[Any]") -> None:
        if status:
            status.update(escape(f"{done} done; {check.name}: {check.claim}"))

    def after(finding: "Finding") -> None:
        nonlocal done
        done += 1

    with status or nullcontext():
        yield console, before, after


def _print(console: "Console", lines: list[str]) -> None:
    """Prints a report, the verdicts in their colors."""
    from rich.markup import escape

    from pellucid.verification.verdict import Verdict

    colors = {str(verdict): COLORS.get(verdict.name, "") for verdict in Verdict}
    for line in lines:
        color = colors.get(line[:13].strip())
        text = f"[{color}]{escape(line[:13])}[/]{escape(line[13:])}" if color else escape(line)
        console.print(text, soft_wrap=True)


def _print_json(finding: "Finding") -> None:
    from json import dumps

    print(dumps(finding.to_data(), ensure_ascii=False), flush=True)

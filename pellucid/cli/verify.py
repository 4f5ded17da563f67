"""`pellucid verify`: whether a model's numbers can be trusted."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pellucid.checks.catalogue import Result
    from pellucid.checks.finding import Check

COLOURS = {"equal": "green", "noise": "cyan", "BUG": "bold red", "skipped": "dim"}


def verify(
    model: Annotated[str, typer.Argument(help="A folder, a .gguf or .toml file, or a model's name.")],
    quick: Annotated[bool, typer.Option("--quick", help="Only the checks that take seconds.")] = False,
    device: Annotated[str, typer.Option(help="Where the fast engine runs: cpu, cuda.")] = "cpu",
    json: Annotated[bool, typer.Option("--json", help="One JSON line for each check.")] = False,
) -> None:
    """Whether a model's numbers can be trusted: a catalogue of claims, each measured on this model.

    equal: within the tolerance. noise: within what rounding explains. BUG: neither, with the first name that
    is wrong. The exit code is 1 where there is a bug.
    """
    from pellucid.checks.catalogue import select_checks
    from pellucid.checks.catalogue import verify as catalogue
    from pellucid.checks.subject import Subject
    from pellucid.workbench import load

    subject = Subject(load(model, device=device))
    subject.model.place()  # a device that is not here is told before anything else
    results: list[Result] = []
    with _shown(json) as (begin, show):
        for result in catalogue(subject, quick, begin):
            results.append(result)
            show(result)
    bugs = [result for result in results if result.finding.verdict == "BUG"]
    if not json:
        if not_run := len(select_checks(quick)) - len(results):
            print(f"skipped  {not_run} checks: not run: the weights are not finite")
        _summary(model, results, bugs)
    if bugs:
        raise typer.Exit(1)


Show = Callable[["Result"], None]


@contextmanager
def _shown(json: bool) -> Iterator[tuple[Callable[["Check"], None], Show]]:
    """Each check as it comes: a spinner with its name while it runs, where a person looks on."""
    if json:
        yield (lambda check: None), _line
        return
    from rich.markup import escape

    from pellucid.cli.console import Console

    console = Console(highlight=False)
    quiet = not sys.stdout.isatty()
    status = None if quiet else console.status("")

    def begin(check: "Check") -> None:
        if status:
            status.update(escape(f"{check.name}: {check.claim}"))

    def show(result: "Result") -> None:
        verdict = result.finding.verdict
        colour = COLOURS[verdict]
        claim = escape(f"{result.check.name:<19}{result.check.claim}")
        console.print(f"[{colour}]{verdict:<8}[/] {claim}", soft_wrap=True)
        detail = f"{result.finding.measured}"
        if verdict != "skipped":
            detail += f"  (allowed: {result.check.budget})"
        console.print(f"{'':<28}{detail}  {result.seconds:.1f} s", style="dim", soft_wrap=True, markup=False)
        if verdict == "BUG":
            console.print(
                f"{'':<9}BUG at {result.finding.at}", style="bold red", soft_wrap=True, markup=False
            )
            for line in result.finding.story.splitlines():
                console.print(f"{'':<9}{line}", soft_wrap=True, markup=False)

    if status:
        with status:
            yield begin, show
    else:
        yield begin, show


def _line(result: "Result") -> None:
    from json import dumps

    data: dict[str, Any] = {
        "check": result.check.name,
        "claim": result.check.claim,
        "budget": result.check.budget,
        "verdict": result.finding.verdict,
        "measured": result.finding.measured,
        "at": result.finding.at,
        "story": result.finding.story,
        "seconds": round(result.seconds, 3),
    }
    print(dumps(data, ensure_ascii=False), flush=True)


def _summary(model: str, results: "list[Result]", bugs: "list[Result]") -> None:
    seconds = sum(result.seconds for result in results)
    skipped = [result.check.name for result in results if result.finding.verdict == "skipped"]
    made = len(results) - len(skipped)
    told = f"{made} check{'s' * (made != 1)} in {seconds:.0f} s"
    told += f"; not checked: {', '.join(skipped)}" if skipped else ""
    if bugs:
        names = ", ".join(f"{bug.check.name} (at {bug.finding.at})" for bug in bugs)
        print(f"\n{model}: do not trust it yet. {told}; {len(bugs)} found a bug: {names}.")
    else:
        print(f"\n{model}: no bug found. {told}.")

"""`pellucid explain`: where a number came from."""

import time
from typing import Annotated, Any

import typer

from pellucid.cli.options import Json, OptionalPrompts, Targets, UpdateOptions, Weights, with_options
from pellucid.cli.terminal import note, print_json


@with_options
def explain(
    model: Annotated[
        str,
        typer.Argument(
            help="A model's folder, .gguf or .toml file or name; a trace or ledger file (.json); or a run's "
            "folder: with a prompt its newest model, without one its steps."
        ),
    ],
    prompts: OptionalPrompts = None,
    at: Annotated[
        str | None,
        typer.Option(
            help="A number, NAME[t=1,v=2]; a table, NAME[t=1] or NAME; a place by its token, NAME[t=it]; "
            "of a run, NAME@k after update k.",
            metavar="ADDRESS",
        ),
    ] = None,
    depth: Annotated[int, typer.Option(help="How many steps to follow its operands.", min=0, max=1000)] = 3,
    top: Annotated[
        int,
        typer.Option(
            help="How many terms of a long sum to show, and of the largest entries of a folded table.",
            min=1,
            max=100_000,
        ),
    ] = 6,
    weights: Weights = None,
    target: Targets = None,
    *,
    updates: UpdateOptions,
    tokens: Annotated[
        int | None,
        typer.Option(
            help="Without a prompt: the shape of every value for this many tokens.", min=1, max=1_000_000
        ),
    ] = None,
    batch: Annotated[int | None, typer.Option(help="The rows of those tokens.", min=1, max=1_000_000)] = None,
    digits: Annotated[int, typer.Option(help="Significant digits.", min=1, max=17)] = 5,
    lines: Annotated[
        int, typer.Option(help="How long the text may be; 0: no limit.", min=0, max=1_000_000)
    ] = 40,
    flatten: Annotated[
        bool,
        typer.Option(
            "--flatten",
            help="Chains of additions as one sum: the residual stream by everything that was written to it.",
        ),
    ] = False,
    raw_tokens: Annotated[
        bool, typer.Option("--raw-tokens", help="Tokens as the tokenizer's file writes them: Ġcat, not ·cat.")
    ] = False,
    token: Annotated[
        int | None,
        typer.Option(
            help="Of a ledger: the number of the new token, from 1; -1 is the last.",
            metavar="N",
            min=-(10**9),
            max=10**9,
        ),
    ] = None,
    choice: Annotated[int, typer.Option(help="Of a ledger: which of its texts.", min=0, max=10**6)] = 0,
    ledger_model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="Of a ledger: its model, where it is not at the ledger's own path.",
            metavar="MODEL",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show where a number came from: its formula, the formula with its numbers, and so on for its operands.

    Without --at, every name with its shape. A config-only preset shows its parameters and cost. Of a run,
    the step is replayed bit for bit: gradient, clipping, moments, decay and rate of one weight's update; the
    exit code is 1 where one of these numbers does not follow from those before it (BUG). Of a ledger,
    --token N goes from the probability with which a token was drawn through the samplers to the logits, and
    on into the model.
    """
    from pellucid.explanation.trace import IN_A_SHELL
    from pellucid.verbs import explain

    found: Any = explain(
        model,
        prompts or None,
        at,
        depth=depth,
        top=top,
        lines=None if json else lines or None,
        flatten=flatten,
        tokens=tokens,
        batch=batch,
        progress=_Progress(),
        raw_tokens=raw_tokens,
        weights=weights,
        token=token,
        choice=choice,
        ledger_model=ledger_model,
        say=note,
        **updates.make_run(target),
    )
    if json:
        print_json(found.to_data())
    else:
        asked = (at or "").partition("[")[0].strip()
        if at and found.name != asked:
            print(f"{asked} is another name of {found.name}.")
        shown, most = list(found.to_lines(digits, IN_A_SHELL)), lines if at is None else 0
        for line in shown[: most or None]:
            print(line)
        if most and len(shown) > most:
            print(f"… {len(shown) - most} more lines: --lines 0")
    if getattr(found, "is_bug", False):
        raise typer.Exit(1)


class _Progress:
    """Prints a line on standard error now and then, where a replay takes its time."""

    def __init__(self, seconds: float = 2.0) -> None:
        self.seconds, self.last = seconds, time.monotonic()

    def __call__(self, step: int, last: int) -> None:
        if time.monotonic() - self.last > self.seconds and step < last:
            self.last = time.monotonic()
            note(f"replaying step {step:,} of {last:,} …")

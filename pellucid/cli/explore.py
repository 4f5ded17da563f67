"""`pellucid explore`: a page in the browser on which every number opens."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pellucid.base.errors import UsageError
from pellucid.cli.options import Force, OptionalPrompt, Rate, Target, Update, Weights
from pellucid.cli.signals import exit_by_signal
from pellucid.cli.terminal import say


def explore(
    source: Annotated[
        str,
        typer.Argument(
            help="A model's folder, .gguf or .toml file or name; a run's folder; or a trace file (.json).",
            metavar="SOURCE",
        ),
    ],
    prompt: OptionalPrompt = None,
    target: Target = None,
    update: Update = None,
    lr: Rate = None,
    weights: Weights = None,
    port: Annotated[
        int, typer.Option(help="The port of this machine to serve on; 0: any free one.", min=0, max=65_535)
    ] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, and open no browser.")
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option(help="Write the page as one HTML file that needs no server.", metavar="FILE"),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(help="Of --export: a number whose whole path is in the file.", metavar="ADDRESS"),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(help="Of --export: how large the file may be; 5MB by default.", metavar="BYTES"),
    ] = None,
    force: Force = False,
) -> None:
    """Open a model's run in the browser: every number leads to the numbers that it was made from.

    The page is served on this machine alone, under a random key. Without a prompt it asks for one. With
    --export the page is one file that can be sent to anybody.
    """
    given = {"prompt": prompt, "target": target, "update": update, "lr": lr}
    run: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if run and prompt is None:
        raise UsageError("--target, --update and --lr are of a prompt: give one after SOURCE.")
    if lr is not None and update is None:
        raise UsageError("--lr is the rate of an update: give the rule as well, --update sgd.")
    if export is not None:
        _export(source, run | {"backward": target is not None}, weights, export, at, size or "5MB", force)
        return
    if at is not None or size is not None or force:
        raise UsageError("--at, --size and --force are of --export: give the FILE to write.")
    from pellucid.server.explorer.serve import explore

    if target is not None:  # gradients too where they take next to nothing; else the page says what they take
        run["backward"] = None
    exit_by_signal(explore(source, run, weights=weights, port=port, opens_browser=not no_browser, say=say))


def _export(
    source: str,
    run: dict[str, Any],
    weights: str | None,
    file: Path,
    at: str | None,
    size: str,
    force: bool,
) -> None:
    from functools import partial

    from pellucid.base.arguments import check_size
    from pellucid.base.formatting import format_bytes
    from pellucid.cli.console import rate_bar
    from pellucid.server.explorer.export import write_page
    from pellucid.server.explorer.held_trace import RunRequest

    request = RunRequest(**run) if "prompt" in run else None
    most = check_size("--size", size, least=100_000, most=1_000_000_000)
    with rate_bar("B") as bar:
        progress = partial(bar, "answers")
        path = write_page(
            source, file, request, weights=weights, at=at, size=most, force=force, progress=progress
        )
    print(f"{path}: {format_bytes(path.stat().st_size)}, opens without a network")

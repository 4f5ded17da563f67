"""`pellucid get`: downloads a model into the library."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.base.formatting import format_bytes
from pellucid.cli.options import Force

if TYPE_CHECKING:
    from pellucid.formats.fetch import DownloadProgress, Report


def get(
    model: Annotated[str, typer.Argument(help="A name that `pellucid list` shows, or hf:ORG/NAME.")],
    force: Force = False,
) -> None:
    """Download a model into the library: complete and verified, or not at all. No downloaded code is run."""
    from pellucid.formats.fetch import get as fetch
    from pellucid.formats.library import KNOWN, size_of

    with _progress(model) as report:
        got = fetch(model, force=force, report=report)
    if not got.fresh:
        print(f"{model} is downloaded already: {got.path} (--force downloads it again)")
        return
    print(f"{model}: {got.path}, {format_bytes(size_of(got.path))}")
    if known := KNOWN.get(model):
        print(f"{known.about}; {known.licence}; sha256 {known.sha256[:16]}… as pinned")


@contextmanager
def _progress(model: str) -> Iterator["Report"]:
    """Yields a callback: a bar in a terminal, one line elsewhere; nothing where nothing is downloaded."""
    if not sys.stderr.isatty():
        is_printed = False

        def once(now: "DownloadProgress") -> None:
            nonlocal is_printed
            if not is_printed:
                size = "" if now.total is None else f" ({format_bytes(now.total)})"
                print(f"downloading {model}{size} …", file=sys.stderr, flush=True)
                is_printed = True

        yield once
        return
    from rich.progress import BarColumn, DownloadColumn, SpinnerColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    from pellucid.cli.console import Console

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),  # a name is text, whatever brackets it has
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(model, total=None)

        def report(now: "DownloadProgress") -> None:
            bar.update(task, completed=now.bytes, total=now.total)

        yield report

"""`pellucid get`: fetch a model into the library."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli.options import Force

if TYPE_CHECKING:
    from pellucid.interop.fetch import Progress, Report


def get(
    model: Annotated[str, typer.Argument(help="A name that `pellucid list` shows, or hf:ORG/NAME.")],
    force: Force = False,
) -> None:
    """Fetch a model into the library: whole and checked, or not at all. Nothing that comes with it is run."""
    from pellucid.cards.conventions import readable_bytes
    from pellucid.interop.fetch import get as fetch
    from pellucid.interop.library import KNOWN, size_of

    with _progress(model) as report:
        got = fetch(model, force=force, report=report)
    if not got.fresh:
        print(f"{model} is here already: {got.path} (--force fetches it again)")
        return
    print(f"{model}: {got.path}, {readable_bytes(size_of(got.path))}")
    if known := KNOWN.get(model):
        print(f"{known.about}; {known.licence}; sha256 {known.sha256[:16]}… as pinned")


@contextmanager
def _progress(model: str) -> Iterator["Report"]:
    """A bar where a person looks on, one line where a file does; nothing where there is nothing to fetch."""
    if not sys.stderr.isatty():
        is_printed = False

        def once(now: "Progress") -> None:
            nonlocal is_printed
            if not is_printed:
                size = "" if now.total is None else f" ({now.total / 1e6:.0f} MB)"
                print(f"fetching {model}{size} …", file=sys.stderr, flush=True)
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

        def report(now: "Progress") -> None:
            bar.update(task, completed=now.bytes, total=now.total)

        yield report

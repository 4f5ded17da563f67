"""`pellucid get` and `pellucid list`: a model downloaded into the library, and what is there."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.base.formatting import format_bytes
from pellucid.cli.options import Force, Json
from pellucid.cli.terminal import note, print_json

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
                note(f"downloading {model}{size} …")
                is_printed = True

        yield once
        return
    from pellucid.cli.console import open_bar

    with open_bar("Spinner", "{task.description}", "Bar", "Download", "TransferSpeed", transient=True) as bar:
        task = bar.add_task(model, total=None)

        def report(now: "DownloadProgress") -> None:
            bar.update(task, completed=now.bytes, total=now.total)

        yield report


def list_models(json: Json = False) -> None:
    """List the models of the library, those that `get` can download, and the presets."""
    from pellucid.formats.resolve import list_models

    found = list_models()
    if json:
        print_json(found)
        return
    models = found["models"]
    print(f"models in {found['library']}:" if models else f"no models yet in {found['library']}")
    _print_columns([_row(model) for model in models])
    print("\n`pellucid get NAME` downloads:")
    _print_columns(
        [
            *([k["name"], format_bytes(k["bytes"]), k["licence"], k["about"]] for k in found["known"]),
            ["hf:ORG/NAME", "", "", "a model of the Hugging Face hub"],
        ]
    )
    print("\npresets:")
    _print_columns(
        [
            [shape["name"], f"{shape['parameters']:,} parameters", "with weights" * shape["weights"]]
            for shape in found["presets"]
        ]
    )


def _row(model: dict[str, Any]) -> list[str]:
    size = format_bytes(model["bytes"])
    if "broken" in model:
        return [model["name"], "broken", "", size, model["broken"]]
    stored = ", ".join(model["types"])
    count = f"{model['parameters']:,} parameters"
    return [model["name"], model["architecture"], count, size, f"{stored}  {model['path']}"]


def _print_columns(rows: list[list[str]]) -> None:
    """Prints rows, each column as wide as its longest text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())

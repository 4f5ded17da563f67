"""`pellucid import`: converts weights in pickles to a folder with safetensors."""

from pathlib import Path
from typing import Annotated

import typer

from pellucid.cli.options import Force, OutputFolder, StoredDtype


def import_(
    source: Annotated[
        Path, typer.Argument(help="A Hugging Face folder with .bin weights, or a .bin or .pt file in one.")
    ],
    output: OutputFolder,
    dtype: StoredDtype = None,
    force: Force = False,
) -> None:
    """Convert a pickle (.bin, .pt) to safetensors. A pickle is a program; it is read without running it."""
    from pellucid.formats.export import describe_files
    from pellucid.formats.pickled import import_pickled

    import_pickled(source, output, dtype, force)
    print(describe_files(output))

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
    from pellucid.cli.export import describe_output
    from pellucid.errors import FileError
    from pellucid.files import check_output
    from pellucid.interop.folder import MODEL_FOLDER
    from pellucid.interop.pickled import import_pickled

    if not source.exists():
        raise FileError(f"{source}: there is no such file or folder.")
    check_output(output, MODEL_FOLDER, force, folder=True)
    import_pickled(source, output, dtype, force)
    print(describe_output(output))

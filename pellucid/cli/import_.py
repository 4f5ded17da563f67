"""`pellucid import`: weights in pickles, made into a folder with safetensors."""

from pathlib import Path
from typing import Annotated

import typer


def import_(
    source: Annotated[
        Path, typer.Argument(help="A Hugging Face folder with .bin weights, or a .bin or .pt file in one.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to make.")],
    dtype: Annotated[
        str | None, typer.Option(help="float32, float16 or bfloat16; as in the source where not given.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a model that is there already.")] = False,
) -> None:
    """Turn a pickle (.bin, .pt) into safetensors. A pickle is a program; it is read without running it."""
    from pellucid.cli.export import written
    from pellucid.errors import FileError
    from pellucid.files import check_output
    from pellucid.interop.output import MODEL_FOLDER
    from pellucid.interop.pickled import import_pickled

    if not source.exists():
        raise FileError(f"{source}: there is no such file or folder.")
    check_output(output, MODEL_FOLDER, force, folder=True)
    import_pickled(source, output, dtype, force)
    print(written(output))

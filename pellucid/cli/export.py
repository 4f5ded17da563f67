"""`pellucid export` and `pellucid import`: a model written for other programs, and pickles converted."""

from pathlib import Path
from typing import Annotated

import typer

from pellucid.cli.options import Force, ModelName, OutputFolder, StoredDtype


def export(
    model: ModelName,
    to: Annotated[str, typer.Option("--to", help="hf, gguf or pellucid.", metavar="FORMAT")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write; for gguf, FILE.gguf.")],
    dtype: StoredDtype = None,
    type: Annotated[
        str | None,
        typer.Option(
            "--type",
            help="The type of a GGUF file: F32, F16 or Q8_0; F16 if omitted, of quantized weights their own.",
            metavar="TYPE",
        ),
    ] = None,
    no_tokenizer: Annotated[
        bool, typer.Option("--no-tokenizer", help="Omit the tokenizer, where the format cannot hold it.")
    ] = False,
    adapter: Annotated[
        Path | None,
        typer.Option(help="A LoRA adapter to merge, of a run or of peft.", metavar="FOLDER"),
    ] = None,
    force: Force = False,
) -> None:
    """Write a model for other programs, or as a Pellucid folder: complete, or not at all."""
    from pellucid.formats.export import describe_files, describe_widening
    from pellucid.formats.export import export as write

    write(model, output, to, dtype=dtype, type=type, tokenizer=not no_tokenizer, adapter=adapter, force=force)
    print(describe_files(output))
    if to == "hf" and (note := describe_widening(model)):
        print(note)


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

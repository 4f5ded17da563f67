"""`pellucid export`: writes a model as a Hugging Face folder, a GGUF file, or a Pellucid folder."""

from pathlib import Path
from typing import Annotated

import typer

from pellucid.cli.options import Force, ModelName, StoredDtype

FORMATS = ("hf", "gguf", "pellucid")


def export(
    model: ModelName,
    to: Annotated[str, typer.Option("--to", help="hf, gguf or pellucid.", metavar="FORMAT")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder to write; for gguf, FILE.gguf.")],
    dtype: StoredDtype = None,
    type: Annotated[
        str | None,
        typer.Option(
            "--type", help="The type of a GGUF file: F32, F16 or Q8_0; F16 if omitted.", metavar="TYPE"
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
    from dataclasses import replace

    from pellucid.errors import FileError, UsageError, unknown
    from pellucid.files import check_output
    from pellucid.interop.folder import GGUF_FILE, MODEL_FOLDER
    from pellucid.workbench import open_model

    if to not in FORMATS:
        raise UsageError(unknown("--to", to, FORMATS))
    if to == "gguf" and dtype is not None:
        raise UsageError("--dtype is for folders; a GGUF file has a --type: F32, F16 or Q8_0.")
    if to != "gguf" and type is not None:
        raise UsageError("--type is for GGUF; a folder has a --dtype: float32, float16 or bfloat16.")
    if to == "gguf" and output.suffix != ".gguf":
        raise FileError(f"a GGUF model is one file; use -o {output.parent / (output.name or 'model')}.gguf.")
    kind = GGUF_FILE if to == "gguf" else MODEL_FOLDER
    check_output(output, kind, force, folder=to != "gguf")
    found = open_model(model)
    if no_tokenizer:
        found = replace(found, tokenizer=None)
    if adapter is not None:
        from pellucid.interop.adapter import merge_adapter, read_adapter

        found = merge_adapter(found, read_adapter(adapter, found.config))
    if to == "gguf":
        from pellucid.interop import gguf

        gguf.write(output, found, type or "F16", force)
    elif to == "hf":
        from pellucid.interop import huggingface

        huggingface.write(output, found, dtype, force=force)
    else:
        from pellucid.interop import model_folder

        model_folder.write(output, found, dtype, force=force)
    print(describe_output(output))


def describe_output(output: Path) -> str:
    """Prints one line about a model that was just written, as read from the disk."""
    from collections import Counter

    from pellucid.format import format_bytes
    from pellucid.interop.library import size_of
    from pellucid.interop.resolve import open_model
    from pellucid.pretrained import parameter_count

    model = open_model(output)
    types = ", ".join(
        f"{count} {type}" for type, count in Counter(model.provenance.types.values()).most_common()
    )
    count = parameter_count(model.config.parameters())
    return (
        f"{output}: {model.provenance.architecture}, {format_bytes(size_of(output))}, "
        f"{count:,} parameters in {len(model.provenance.types)} tensors ({types})"
    )

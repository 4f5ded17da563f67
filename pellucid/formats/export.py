"""A model written for other programs: a Hugging Face folder, a GGUF file, or a Pellucid folder."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

from pellucid.base.errors import FileError, UsageError, unknown
from pellucid.base.files import check_output
from pellucid.base.formatting import format_bytes, pluralize
from pellucid.formats import gguf, huggingface, model_folder
from pellucid.formats.adapter import merge_adapter, read_adapter
from pellucid.formats.folder import GGUF_FILE, MODEL_FOLDER
from pellucid.formats.library import size_of
from pellucid.formats.pretrained import as_lazy, parameter_count
from pellucid.formats.resolve import open_model

FORMATS = ("hf", "gguf", "pellucid")


def export(
    model: str | Path,
    output: str | Path,
    to: str,
    *,
    dtype: str | None = None,
    type: str | None = None,
    tokenizer: bool = True,
    adapter: str | Path | None = None,
    force: bool = False,
) -> None:
    """Writes a model whole or not at all, with an adapter merged and without its tokenizer where asked.

    `dtype` is that of a folder, by default the source's; `type` that of a GGUF file, by default F16, and for
    quantized weights the type that holds their integers. A Hugging Face folder gets their numbers in float32.
    """
    output, is_gguf = Path(output), to == "gguf"
    if to not in FORMATS:
        raise UsageError(unknown("to", to, FORMATS))
    if is_gguf and dtype is not None:
        raise UsageError("dtype is for folders; a GGUF file has a type: F32, F16 or Q8_0.")
    if not is_gguf and type is not None:
        raise UsageError("type is for GGUF; a folder has a dtype: float32, float16 or bfloat16.")
    if is_gguf and output.suffix != ".gguf":
        raise FileError(f"a GGUF model is one file; use -o {output.parent / (output.name or 'model')}.gguf.")
    check_output(output, GGUF_FILE if is_gguf else MODEL_FOLDER, force, folder=not is_gguf)
    found = open_model(model)
    if not tokenizer:
        found = replace(found, tokenizer=None)
    if adapter is not None:
        found = merge_adapter(found, read_adapter(Path(adapter), found.config))
    if is_gguf:
        gguf.write(output, found, type, force)
    else:
        write = huggingface.write if to == "hf" else model_folder.write
        write(output, found, dtype, force=force)


def describe_widening(model: str | Path) -> str:
    """Returns one line where a folder without quantized weights got their numbers, "" where none are."""
    count = len(as_lazy(open_model(model).weights).types)
    return (
        f"{pluralize(count, 'quantized weight')} written as float32, the numbers unchanged" if count else ""
    )


def describe_files(path: Path) -> str:
    """Returns one line about a model on the disk: architecture, size, parameters and number types."""
    model = open_model(path)
    counts = Counter(model.provenance.types.values()).most_common()
    types = ", ".join(f"{count} {type}" for type, count in counts)
    return (
        f"{path}: {model.provenance.architecture}, {format_bytes(size_of(path))}, "
        f"{parameter_count(model.config.parameters()):,} parameters in "
        f"{len(model.provenance.types)} tensors ({types})"
    )

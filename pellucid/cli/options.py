"""Arguments and options that several commands share, each declared once."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pellucid.errors import TokenError, UsageError

if TYPE_CHECKING:
    from pellucid.workbench import Model

ModelName = Annotated[
    str,
    typer.Argument(
        help="A model folder, a .gguf or .toml file, a run folder, a name of `pellucid list`, or a preset.",
        metavar="MODEL",
    ),
]
TokenizerName = Annotated[
    str,
    typer.Argument(
        help="A tokenizer folder, or a model: a folder, a .gguf file or a name.", metavar="TOKENIZER"
    ),
]
Prompt = Annotated[
    str,
    typer.Argument(help="The text that the model reads, or ids, '[1, 2]', where it has no tokenizer."),
]
OptionalPrompt = Annotated[str | None, Prompt.__metadata__[0]]
Text = Annotated[str | None, typer.Argument(help="The text; standard input if omitted.")]
Sources = Annotated[list[str], typer.Argument(help="Files, folders, patterns, or - for standard input.")]
Target = Annotated[
    str | None, typer.Option(help="The text that should follow; the loss is the mean over its tokens.")
]
Update = Annotated[
    str | None,
    typer.Option(
        help="Update the weights on the target, by an optimizer of `pellucid choices optimizers`.",
        metavar="RULE",
    ),
]
Rate = Annotated[float, typer.Option("--lr", help="The learning rate of the update.", min=-1e9, max=1e9)]
Only = Annotated[
    str, typer.Option(help="Update only parameters whose names match this pattern.", metavar="PATTERN")
]
Steps = Annotated[int, typer.Option(help="The number of updates.", min=1, max=1000)]
Digits = Annotated[int, typer.Option(help="Significant digits.", min=1, max=17)]
Device = Annotated[str, typer.Option(help="Where the fast engine computes: cpu or cuda.")]
Dtype = Annotated[
    str, typer.Option(help="The fast engine's number type: float32, bfloat16, float16 or float64.")
]
StoredDtype = Annotated[
    str | None,
    typer.Option(
        help="The number type to store: float64, float32, float16 or bfloat16; if omitted, the source's."
    ),
]
ParseSpecial = Annotated[
    bool, typer.Option("--parse-special", help="Read special tokens in the text, such as <|im_start|>.")
]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of text, numbers in full.")]
OutputFolder = Annotated[Path, typer.Option("--output", "-o", help="The folder to write.", metavar="FOLDER")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there already.")]
Field = Annotated[str, typer.Option(help="The field of a JSON line that holds the text.")]
OnBadFile = Annotated[
    str,
    typer.Option(
        help="A file that cannot be read as text: stop (and list all such files), skip, or replace (put "
        "U+FFFD for bytes that are not UTF-8, and count them).",
        metavar="CHOICE",
    ),
]
ReplaceErrors = Annotated[bool, typer.Option("--replace-errors", help="The same as --on-bad-file replace.")]


def prompt_of(model: "Model", text: str | None) -> Any:
    """What a model reads: the text, or for one without a tokenizer the ids that it lists, '[1, 2, 3]'."""
    listed = re.fullmatch(r"\s*\[([\d,\s]*)\]\s*", text or "")
    if listed is None or model.pretrained.tokenizer is not None:
        return text
    ids = [id.lstrip("0") or "0" for id in re.findall(r"\d+", listed[1])]
    if strange := [id for id in ids if len(id) > 18]:
        raise TokenError(f"an id is beyond every vocabulary: it has {len(strange[0])} digits.")
    return [int(id) for id in ids]


def training(update: str | None, lr: float, only: str, steps: int) -> dict[str, Any]:
    """The settings of `Model.trace`; asking for a part of an update without one is a mistake."""
    if update:
        return {"update": update, "lr": lr, "only": only, "steps": steps}
    if (lr, only, steps) != (1.0, "*", 1):
        raise UsageError("--lr, --only and --steps belong to an update: give --update sgd, for example.")
    return {}


def bad_file_choice(on_bad_file: str, replace_errors: bool) -> str:
    """What --on-bad-file and its older form --replace-errors ask for together."""
    if replace_errors and on_bad_file not in ("stop", "replace"):
        raise UsageError(
            f"--replace-errors means --on-bad-file replace, not {on_bad_file}: give one of them."
        )
    return "replace" if replace_errors else on_bad_file

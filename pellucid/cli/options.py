"""Arguments and options that several commands share, each declared once."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pellucid.base.errors import UsageError
from pellucid.parts import kinds

ModelName = Annotated[
    str,
    typer.Argument(
        help="A model folder, a .gguf or .toml file, a run folder, a name of `pellucid list`, or a preset.",
        metavar="MODEL",
    ),
]
OptionalModelName = Annotated[str | None, ModelName.__metadata__[0]]
TokenizerName = Annotated[
    str,
    typer.Argument(
        help="A tokenizer folder, or a model: a folder, a .gguf file or a name.", metavar="TOKENIZER"
    ),
]
OptionalPrompt = Annotated[
    str | None,
    typer.Argument(help="The text that the model reads, or ids, '[1, 2]', where it has no tokenizer."),
]
Prompts = Annotated[
    list[str],
    typer.Argument(
        help="The text that the model reads, or ids, '[1, 2]', without a tokenizer; several make a batch.",
        metavar="PROMPT...",
    ),
]
OptionalPrompts = Annotated[list[str] | None, Prompts.__metadata__[0]]
Text = Annotated[str | None, typer.Argument(help="The text; standard input if omitted.")]
Sources = Annotated[list[str], typer.Argument(help="Files, folders, patterns, or - for standard input.")]
Target = Annotated[
    str | None, typer.Option(help="The text that should follow; the loss is the mean over its tokens.")
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target", help="The text that should follow; the loss is the mean over its tokens. One per prompt."
    ),
]
Smoothing = Annotated[float, typer.Option(help="Label smoothing of the loss, 0 to 1.", min=0, max=1)]
Update = Annotated[
    str | None,
    typer.Option(help=f"Update the weights on the target: {', '.join(kinds('optimizers'))}.", metavar="RULE"),
]
Rate = Annotated[
    float | None,
    typer.Option(
        "--lr",
        help="The learning rate of the update; 1 if omitted, other than in a recipe.",
        min=-1e9,
        max=1e9,
    ),
]
Setting = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="A setting of the update rule, such as beta2=0.95; repeatable.", metavar="KEY=VALUE"
    ),
]
Clip = Annotated[float | None, typer.Option(help="Scale the gradients down to this norm.", min=0, max=1e9)]
Only = Annotated[
    list[str] | None,
    typer.Option(help="Update only parameters whose names match; repeatable.", metavar="PATTERN"),
]
Freeze = Annotated[
    list[str] | None,
    typer.Option(help="Do not update parameters whose names match; repeatable.", metavar="PATTERN"),
]
Steps = Annotated[int, typer.Option(help="The number of updates.", min=1, max=1000)]
Digits = Annotated[int, typer.Option(help="Significant digits.", min=1, max=17)]
Device = Annotated[str, typer.Option(help="Where the fast engine computes: cpu or cuda.")]
Dtype = Annotated[
    str, typer.Option(help="The fast engine's number type: float32, bfloat16, float16 or float64.")
]
HELD = (
    "How to hold the matrices: float; int8 or int4, quantized now; or file, a GGUF's own blocks; if omitted, "
)
Weights = Annotated[
    str | None,
    typer.Option(help=f"{HELD}float, or the integers of a quantized folder.", metavar="KIND"),
]
DecodedWeights = Annotated[
    str | None,
    typer.Option(
        help=f"{HELD}file on a CPU whose compiled decoder has the model's choices, else float.",
        metavar="KIND",
    ),
]
Cache = Annotated[
    str | None, typer.Option(help="The number type of the KV cache: float32, bfloat16 or int8.")
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
DATA = typer.Argument(
    help="Text files, folders, patterns, .jsonl files (texts, or conversations, whose answers "
    "count), token folders, stories:LEVEL, task:NAME, or - for standard input.",
    metavar="DATA...",
)
DataSources = Annotated[list[str], DATA]
Against = Annotated[
    list[str] | None,
    typer.Option(help="A further model, compared with the first; repeatable.", metavar="MODEL"),
]
Window = Annotated[
    int | None,
    typer.Option(
        help="Tokens that the model reads at once; if omitted, its context length, at most 1024.",
        min=1,
        max=1_000_000_000,
    ),
]
Stride = Annotated[
    int | None,
    typer.Option(
        help="Tokens from one window to the next; if omitted, the window. A smaller one gives every "
        "target after the first window more than window − stride tokens of context, and takes longer.",
        min=1,
        max=1_000_000_000,
    ),
]
SplitRule = Annotated[
    str,
    typer.Option(
        "--split",
        help="Where one document of a text file ends: file, line, paragraph, separator=TEXT, jsonl.",
        metavar="RULE",
    ),
]
Limit = Annotated[
    str | None,
    typer.Option(help="At most this much of each DATA: documents, 100, or text, 50kB.", metavar="AMOUNT"),
]
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


def trace_options(
    target: list[str] | None,
    smoothing: float,
    update: str | None,
    lr: float | None,
    settings: list[str] | None,
    clip: float | None,
    only: list[str] | None,
    freeze: list[str] | None,
    steps: int,
) -> dict[str, Any]:
    """Returns the arguments of `pellucid.trace` that these options give."""
    given = {
        "target": target,
        "smoothing": smoothing,
        "update": update,
        "lr": lr,
        "clip": clip,
        "only": only,
        "freeze": freeze,
        "settings": _read_settings(settings or []),
        "steps": steps,
    }
    defaults = {"smoothing": 0.0, "steps": 1}
    return {key: value for key, value in given.items() if value not in (None, [], {}, defaults.get(key))}


def _read_settings(given: list[str]) -> dict[str, float]:
    settings = {}
    for text in given:
        name, _, value = text.partition("=")
        try:
            settings[name.strip()] = float(value)
        except ValueError:
            raise UsageError(f"--set {text} must be NAME=NUMBER, for example --set beta2=0.95.") from None
    return settings


def bad_file_choice(on_bad_file: str, replace_errors: bool) -> str:
    """Returns the choice that --on-bad-file and its older form --replace-errors make together."""
    if replace_errors and on_bad_file not in ("stop", "replace"):
        raise UsageError(
            f"--replace-errors means --on-bad-file replace, not {on_bad_file}: give one of them."
        )
    return "replace" if replace_errors else on_bad_file


def choose_weights(weights: str | None, device: str, dtype: str) -> str | None:
    """Returns how a command that decodes holds the matrices where nothing is said: on a CPU as the file has
    them, which takes less memory and time than floats."""
    return "auto" if weights is None and (device, dtype) == ("cpu", "float32") else weights


def read_text_option(given: str | None) -> str | None:
    """Returns a text that was given as an option, or that of the file which it names: FILE.txt."""
    if given is None or not given.endswith(".txt"):
        return given
    from pathlib import Path

    from pellucid.base.files import read_text

    return read_text(Path(given))

"""Arguments and options that several commands share, each declared once, and groups of them.

    @with_options
    def look(model: ModelName, *, engine: ModelOptions, json: Json = False) -> None:
        opened = engine.open(model)

In place of a parameter whose type is a group, the command has the options of the group, at its place.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, get_type_hints

import typer

from pellucid.base.errors import UsageError
from pellucid.parts import kinds

if TYPE_CHECKING:
    from pellucid.model import Model

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


@dataclass(frozen=True)
class Options:
    """A group of options, which several commands share or one passes on under their own names."""

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """Returns the parameters that typer makes options of."""
        hints = get_type_hints(cls, include_extras=True)
        return [
            inspect.Parameter(
                entry.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=entry.default,
                annotation=hints[entry.name],
            )
            for entry in fields(cls)
        ]

    @classmethod
    def read(cls, values: dict[str, Any]) -> Self:
        """Returns the group with the values of a command line."""
        return cls(**values)

    def to_arguments(self) -> dict[str, Any]:
        """Returns the options by name, without those that were not given and have no default."""
        return {name: value for name, value in vars(self).items() if value is not None}


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Returns the command with options in place of each parameter that is a group of them."""
    groups: dict[str, tuple[type[Options], list[str]]] = {}
    parameters = []
    for one in inspect.signature(command, eval_str=True).parameters.values():
        if isinstance(one.annotation, type) and issubclass(one.annotation, Options):
            found = one.annotation.parameters()
            groups[one.name] = one.annotation, [entry.name for entry in found]
            parameters += found
        else:
            parameters.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, (kind, names) in groups.items():
            given[name] = kind.read({own: given.pop(own) for own in names})
        command(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
    return run


@dataclass(frozen=True)
class ModelOptions(Options):
    """The fast engine of a model that is opened."""

    device: Device = "cpu"
    dtype: Dtype = "float32"
    weights: Weights = None

    def open(self, name: str) -> "Model":
        """Returns the model of this name."""
        from pellucid.model import load

        return load(name, device=self.device, dtype=self.dtype, weights=self.weights)


@dataclass(frozen=True)
class DecodingOptions(ModelOptions):
    """The fast engine of a model that generates text.

    Where nothing is said, the matrices are held on a CPU as the file has them, which takes less memory and
    time than floats."""

    weights: DecodedWeights = None
    cache: Annotated[
        str | None, typer.Option(help="The number type of the KV cache: float32, bfloat16 or int8.")
    ] = None

    @classmethod
    def read(cls, values: dict[str, Any]) -> Self:
        is_usual = values["weights"] is None and (values["device"], values["dtype"]) == ("cpu", "float32")
        return cls(**values | ({"weights": "auto"} if is_usual else {}))


@dataclass(frozen=True)
class UpdateOptions(Options):
    """The loss of a run of the specification, and the updates that it makes."""

    smoothing: Annotated[float, typer.Option(help="Label smoothing of the loss, 0 to 1.", min=0, max=1)] = 0.0
    update: Update = None
    lr: Rate = None
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="A setting of the update rule, such as beta2=0.95; repeatable.", metavar="KEY=VALUE"
        ),
    ] = None
    clip: Annotated[
        float | None, typer.Option(help="Scale the gradients down to this norm.", min=0, max=1e9)
    ] = None
    only: Annotated[
        list[str] | None,
        typer.Option(help="Update only parameters whose names match; repeatable.", metavar="PATTERN"),
    ] = None
    freeze: Annotated[
        list[str] | None,
        typer.Option(help="Do not update parameters whose names match; repeatable.", metavar="PATTERN"),
    ] = None
    steps: Annotated[int, typer.Option(help="The number of updates.", min=1, max=1000)] = 1

    def make_run(self, target: list[str] | None) -> dict[str, Any]:
        """Returns the arguments of `pellucid.trace` that these options and --target give."""
        settings = {}
        for text in self.setting or []:
            name, _, value = text.partition("=")
            try:
                settings[name.strip()] = float(value)
            except ValueError:
                raise UsageError(f"--set {text} must be NAME=NUMBER, for example --set beta2=0.95.") from None
        run = {"target": target, **vars(self)}
        del run["setting"]
        run |= {"settings": settings, "steps": run.pop("steps")}
        defaults = {"smoothing": 0.0, "steps": 1}
        return {key: value for key, value in run.items() if value not in (None, [], {}, defaults.get(key))}


def bad_file_choice(on_bad_file: str, replace_errors: bool) -> str:
    """Returns the choice that --on-bad-file and its older form --replace-errors make together."""
    if replace_errors and on_bad_file not in ("stop", "replace"):
        raise UsageError(
            f"--replace-errors means --on-bad-file replace, not {on_bad_file}: give one of them."
        )
    return "replace" if replace_errors else on_bad_file


def read_text_option(given: str | None) -> str | None:
    """Returns a text that was given as an option, or that of the file which it names: FILE.txt."""
    if given is None or not given.endswith(".txt"):
        return given
    from pellucid.base.files import read_text

    return read_text(Path(given))

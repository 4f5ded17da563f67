"""The options of a command that generates text, made from the table of settings.

@with_options
def generate(model: ModelName, *, sampling: GivenSampling) -> None:
    resolved = sampling.resolve(found.pretrained.generation, found.tokenizer)
"""

import inspect
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from pellucid.base.arguments import check_path
from pellucid.base.errors import UsageError, show
from pellucid.cli.options import Options
from pellucid.cli.terminal import note
from pellucid.generation.settings.conflicts import find_ineffective
from pellucid.generation.settings.resolve import PRESETS, ResolvedSampling, resolve_sampling
from pellucid.generation.settings.table import (
    SETTINGS,
    Biases,
    Samplers,
    Setting,
    Stops,
    Tokens,
)

if TYPE_CHECKING:
    from pellucid.text.tokenizer import Tokenizer

PANEL = "Sampling"
MOST_SCHEMA = 1 << 20
"""Bytes of a file with a JSON schema."""
METAVARS: dict[Any, str] = {
    Tokens: "TOKEN",
    Biases: "TOKEN=VALUE",
    Samplers: "SAMPLER",
    Any: "FILE|JSON",
}
ADDITIONS: dict[Any, str] = {
    Tokens: " An id or a text; repeatable.",
    Biases: " An id or a text; repeatable.",
    Samplers: " As 'KIND KEY=VALUE'; repeatable.",
    Stops: " \\n is a line break, \\t a tab; repeatable.",
    Any: " A file, or the schema itself.",
}


@dataclass(frozen=True)
class GivenSampling(Options):
    """The sampling options of a command line, one for each setting and `--preset`; tokens may still be
    texts."""

    preset: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        listed = ", ".join(f"{name} ({preset.purpose})" for name, preset in PRESETS.items())
        preset = typer.Option(help=f"Settings by name: {listed}.", metavar="NAME", rich_help_panel=PANEL)
        own = ((name, _type(setting), _option(name, setting)) for name, setting in SETTINGS.items())
        return [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=operator.getitem(Annotated, (kind | None, option)),
            )
            for name, kind, option in (("preset", str, preset), *own)
        ]

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """Returns the options that were given; None and an empty list are options that were not."""
        given = {name: value for name, value in values.items() if value not in (None, [], ())}
        preset = given.pop("preset", None)
        for name, value in given.items():
            if reader := READERS.get(SETTINGS[name].type):
                given[name] = reader(name, value)
        return cls(preset, given)

    def resolve(
        self, generation: Mapping[str, Any] | None = None, tokenizer: "Tokenizer | None" = None
    ) -> ResolvedSampling:
        """Returns the settings over those of the preset and over the model's own, and where each is from.

        An option that changes nothing is named on standard error."""
        from pellucid.generation.settings.token_names import resolve_tokens

        given = resolve_tokens(tokenizer, self.settings)
        resolved = resolve_sampling(generation, self.preset, given, "option")
        for sentence in find_ineffective(resolved.sampling, given):
            note(sentence)
        return resolved


def _type(setting: Setting) -> Any:
    if setting.type in (Tokens, Biases, Samplers, Stops):
        return list[str]
    return setting.type if setting.type in (int, float, bool) else str


def _option(name: str, setting: Setting) -> Any:
    own = f"--{name.replace('_', '-')}"
    flags = [
        setting.option or own,
        *([own] if setting.option.startswith("-") and len(setting.option) == 2 else []),
    ]
    limits = f" ({setting.limits})" if setting.limits else ""
    help = f"{setting.meaning.rstrip('.')}{limits}.{ADDITIONS.get(setting.type, '')}"
    return typer.Option(*flags, help=help, metavar=METAVARS.get(setting.type), rich_help_panel=PANEL)


def _read_biases(name: str, texts: list[str]) -> dict[str, float]:
    biases = {}
    for text in texts:
        token, _, value = text.rpartition("=")
        try:
            biases[token] = float(value)
        except ValueError:
            token = ""
        if not token:
            raise UsageError(f"{name}: {show(text)} must be TOKEN=VALUE, for example --logit-bias 262=-2.5.")
    return biases


def _read_samplers(name: str, texts: list[str]) -> list[dict[str, Any]]:
    from json import loads

    samplers = []
    for text in texts:
        kind, *settings = text.split() or [""]
        table: dict[str, Any] = {"kind": kind}
        for setting in settings:
            key, equals, value = setting.partition("=")
            try:
                table[key] = loads(value)
            except (ValueError, RecursionError):
                table[key] = value
            if not equals or not key:
                raise UsageError(f"{name}: {show(setting)} must be KEY=VALUE, after the kind of sampler.")
        samplers.append(table)
    return samplers


def _read_stops(name: str, texts: list[str]) -> list[str]:
    return [text.replace("\\n", "\n").replace("\\t", "\t") for text in texts]


def _read_schema(name: str, text: str) -> str:
    """Returns the schema itself, or what the file of that name holds."""
    if text.lstrip().startswith("{"):
        return text
    from pellucid.base.files import read_text

    return read_text(Path(check_path(name, text)), MOST_SCHEMA)


READERS: dict[Any, Callable[[str, Any], Any]] = {
    Biases: _read_biases,
    Samplers: _read_samplers,
    Stops: _read_stops,
    Any: _read_schema,
}
"""How the texts of an option become the value of its setting, where they are not that value already."""

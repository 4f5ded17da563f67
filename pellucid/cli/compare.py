"""`pellucid compare`: two runs, or the arrays of another program against a model; noise or bug."""

from dataclasses import dataclass
from typing import Annotated

import typer

from pellucid.cli.options import Json, OptionalPrompt, Options, Target, Weights, with_options
from pellucid.cli.terminal import note, print_json


@dataclass(frozen=True)
class CompareOptions(Options):
    """The arguments of `pellucid.compare` that are options of the same names."""

    target: Target = None
    weights: Weights = None
    names: Annotated[
        str | None,
        typer.Option(
            help="Their names to ours: hf, hf-bloom, hf-gpt2, nanogpt, or a TOML file with lines such as "
            '"h.{l}.attn.q" = "blocks.{l}.attn.q".',
            metavar="TABLE",
        ),
    ] = None
    dtype: Annotated[
        str | None,
        typer.Option(help="The type their run computed in; else that of their arrays.", metavar="TYPE"),
    ] = None
    layout: Annotated[
        str | None,
        typer.Option(
            help="How theirs orders the channels of q and k: halves (Hugging Face) or pairs (GGUF).",
            metavar="LAYOUT",
        ),
    ] = None
    only: Annotated[str, typer.Option(help="Judge only values whose names match.", metavar="PATTERN")] = "*"
    tolerance: Annotated[
        float | None,
        typer.Option(help="What counts as equal, relative to the largest entry.", min=0, max=1000),
    ] = None


@with_options
def compare(
    a: Annotated[str, typer.Argument(help="Ours: a trace file (.json) or a model.", metavar="A")],
    b: Annotated[
        str, typer.Argument(help="Theirs: a trace, a model, or arrays (.npz, .safetensors).", metavar="B")
    ],
    prompt: OptionalPrompt = None,
    *,
    options: CompareOptions,
    json: Json = False,
) -> None:
    """Is this number right? Each value of B, recomputed from B's own numbers by A's program.

    Equal, or noise (rounding explains it, and no usual mistake would hide in it): exit code 0. BUG at a name,
    low precision, or different (each value follows from its inputs, and the weights are not the same): exit
    code 1. No bug seen (with the usual mistakes that could hide, and the values that would show them), or
    cannot tell (too little is recorded for a bound): 0.
    """
    from pellucid.verification.compare import compare

    report = compare(a, b, prompt, **options.to_arguments())
    if report.note:
        note(report.note)
    if json:
        print_json(report.to_data())
    else:
        print(report)
    if not report:
        raise typer.Exit(1)

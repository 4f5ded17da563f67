"""`pellucid quantize`: a model with weights of 8 or 4 bits, and what that costs."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from pellucid.base.errors import UsageError
from pellucid.cli.console import rate_bar
from pellucid.cli.options import Device, Force, Json, ModelName
from pellucid.cli.terminal import count_columns, note, print_report


def quantize(
    model: ModelName,
    bits: Annotated[str | None, typer.Option(help="Bits of a weight: 8 or 4.", metavar="BITS")] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="Inputs that share a scale: a multiple of 32, or row; if omitted, row for 8 bits, 32 for 4.",
            metavar="N",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            help='Parameters that stay as they are, "blocks.0.*" for example; repeatable.', metavar="PATTERN"
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            help="In place of --bits, file: the blocks that the model's file has, as they are.",
            metavar="KIND",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The folder to write; with --bill, its bill too.", metavar="FOLDER"
        ),
    ] = None,
    bill: Annotated[
        bool, typer.Option("--bill", help="Measure what it costs: errors, perplexity, KL, top-1 changes.")
    ] = False,
    on: Annotated[
        str | None,
        typer.Option(
            help="The text that the bill is measured on: a text, a file, a folder or stories:LEVEL; if "
            "omitted, a sample of eight domains.",
            metavar="TEXT_OR_FILE",
        ),
    ] = None,
    tokens: Annotated[
        int, typer.Option(help="Tokens of the text to predict, at most.", min=1, max=100_000)
    ] = 1000,
    against: Annotated[
        str | None,
        typer.Option(help="The original to compare with; the model in float32 if omitted.", metavar="MODEL"),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the bill as FILE.svg, .png or .html.", metavar="FILE")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the bill's bootstrap.", min=0, max=2**63 - 1)] = 0,
    force: Force = False,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Quantize the weights of a model to 8 or 4 bits, and write it as a Pellucid folder; or print the bill,
    what these weights cost in bytes, in error and in predictions.
    """
    from pellucid.evaluation.quantization.quantize import (
        TOKENS,
        check_outputs,
        check_settings,
        compute_bill,
        describe_written,
        make_quantized,
        write_quantized,
    )
    from pellucid.model import load

    settings: dict[str, Any] = {
        "bits": _read_count(bits),
        "group": _read_count(group),
        "keep": keep or [],
        "weights": weights,
    }
    check_settings(**settings)
    if output is None and not bill:
        raise UsageError("there is nothing to do: give a folder to write (-o FOLDER), or --bill, or both.")
    of_bill = {"--on": on, "--tokens": tokens != TOKENS, "--against": against, "--plot": plot, "--seed": seed}
    for name, given in {**of_bill, "--json": json}.items():
        if given and not bill:
            raise UsageError(f"{name} is of the bill: give --bill with it.")
    found = load(model, device=device)
    check_outputs(found.pretrained, output, plot, force)
    quantized, measured = make_quantized(found, **settings), None
    with rate_bar() as bar:
        if bill:
            measured = compute_bill(
                found, **settings, against=against, on=on, tokens=tokens, seed=seed, progress=bar, say=note
            )
        if output is not None:
            write_quantized(output, quantized, measured, force, bar)
    if measured is not None:
        print_report(measured.report(), json, count_columns(0, 120))
        if plot is not None:
            measured.save(plot, force)
    if output is not None:
        print(*describe_written(found.pretrained, output), sep="\n", file=sys.stderr if json else sys.stdout)


def _read_count(text: str | None) -> int | str | None:
    """Returns a whole number as one, and any other text for the message that refuses it."""
    return int(text) if text is not None and text.isdecimal() and len(text) < 19 else text

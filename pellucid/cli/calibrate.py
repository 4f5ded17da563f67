"""`pellucid calibrate`: whether to believe a model's probabilities, and the temperature that fits them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pellucid.base.errors import UsageError
from pellucid.cli.console import rate_bar
from pellucid.cli.options import (
    Against,
    DataSources,
    Force,
    Json,
    Limit,
    ModelName,
    ModelOptions,
    Options,
    SplitRule,
    Stride,
    Window,
    with_options,
)
from pellucid.cli.terminal import count_columns, print_report


@dataclass(frozen=True)
class CalibrateOptions(Options):
    """The arguments of `pellucid.calibrate` that are options of the same names."""

    against: Against = None
    quantize: Annotated[
        list[str] | None,
        typer.Option(
            help="Also with the weights rounded to a type of GGUF: Q8_0, Q4_0 or F16; repeatable.",
            metavar="TYPE",
        ),
    ] = None
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Also each checkpoint that the model's run keeps.")
    ] = False
    temperatures: Annotated[
        str | None, typer.Option(help="Also at these temperatures: 0.7,1.5.", metavar="T,T,…")
    ] = None
    vector: Annotated[
        bool,
        typer.Option("--vector", help="Also fit a factor and a shift for each token; takes much longer."),
    ] = False
    bins: Annotated[int, typer.Option(help="Bins of confidence.", min=1, max=1000)] = 15
    fit_share: Annotated[
        float,
        typer.Option(help="The share of the documents to fit on; the others are measured.", min=0, max=1),
    ] = 0.5
    max_targets: Annotated[
        int,
        typer.Option(
            help="At most this many targets, whose hidden states are held in memory.", min=1, max=10**9
        ),
    ] = 10_000
    window: Window = None
    stride: Stride = None
    split: SplitRule = "file"
    limit: Limit = None
    seed: Annotated[
        int, typer.Option(help="Seed of the parts and of the bootstrap.", min=0, max=2**63 - 1)
    ] = 0
    save: Annotated[
        bool,
        typer.Option(
            "--save", help="Write the fitted temperature into the model's folder, as its generation setting."
        ),
    ] = False
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            help="Write FILE.json, with every number, or a picture, FILE.html, .svg or .png; repeatable.",
            metavar="FILE",
        ),
    ] = None
    trace: Annotated[
        Path | None,
        typer.Option(
            help='Write the steps of every number, for `pellucid explain FILE.json --at "bins.gap[3]"`.',
            metavar="FILE",
        ),
    ] = None
    force: Force = False


@with_options
def calibrate(
    model: ModelName,
    data: DataSources,
    *,
    options: CalibrateOptions,
    engine: ModelOptions,
    json: Json = False,
) -> None:
    """Measure whether to believe a model's probabilities: the expected calibration error with its bins, the
    Brier score and the negative log-likelihood; and fit the temperature that calibrates them.

    MODEL is the first argument; everything after it is DATA. The temperature is fitted on one part of the
    documents, and everything is measured on the other.
    """
    from pellucid.engine.device_memory import keep_freed_memory
    from pellucid.evaluation.calibration.calibrate import calibrate

    keep_freed_memory()
    given = options.to_arguments() | {"temperatures": _read_temperatures(options.temperatures)}
    found = engine.open(model)
    with rate_bar() as bar:
        report = calibrate(
            found,
            data,
            **given,
            curve=json or bool(options.output),
            progress=bar,
        )
    print_report(report.report(), json, count_columns(0, 120))
    if report.is_interrupted:
        raise typer.Exit(130)


def _read_temperatures(given: str | None) -> list[float]:
    try:
        return [float(number) for number in (given or "").split(",") if number.strip()]
    except ValueError:
        raise UsageError(
            f"--temperatures {given!r} must be numbers with commas between them, such as 0.7,1.5."
        ) from None

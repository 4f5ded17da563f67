"""`pellucid evaluate`: how well models predict texts."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pellucid.cli.console import rate_bar
from pellucid.cli.options import (
    DATA,
    Against,
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
from pellucid.cli.terminal import count_columns, print_report, print_warnings


@dataclass(frozen=True)
class EvaluateOptions(Options):
    """The arguments of `pellucid.evaluate` that are options of the same names."""

    tasks: Annotated[
        list[Path] | None,
        typer.Option(
            help="Multiple-choice questions, FILE.jsonl, or tasks of lm-eval, FILE.yaml or a folder of them, "
            "which are programs: only those you trust; repeatable.",
            metavar="PATH",
        ),
    ] = None
    against: Against = None
    window: Window = None
    stride: Stride = None
    split: SplitRule = "file"
    limit: Limit = None
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            help="Write FILE.json, with every figure, or a page, FILE.html; repeatable. What is computed is "
            "kept beside it: the same command continues after an interruption.",
            metavar="FILE",
        ),
    ] = None
    force: Force = False
    samples: Annotated[
        int, typer.Option(help="Samples of the bootstrap, for intervals.", min=1, max=1_000_000)
    ] = 1000
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.", min=0, max=2**63 - 1)] = 0


@with_options
def evaluate(
    model: ModelName,
    data: Annotated[list[str] | None, DATA] = None,
    *,
    options: EvaluateOptions,
    engine: ModelOptions,
    json: Json = False,
) -> None:
    """Measure how well a model predicts texts: loss, perplexity, bits per byte and accuracy, with confidence
    intervals; where it is good and bad; and how other models differ from it.

    MODEL is the first argument; everything after it is DATA; further models are given with --against.
    """
    from pellucid.cli.signals import say_when_ended
    from pellucid.engine.device_memory import keep_freed_memory
    from pellucid.evaluation.evaluate import evaluate
    from pellucid.evaluation.lm_eval_tasks import TaskCodeWarning

    keep_freed_memory()
    found = engine.open(model)
    ended = say_when_ended(lambda: f"Interrupted. {_describe_kept(options.output)}")
    with ended, print_warnings(TaskCodeWarning), rate_bar() as bar:
        evaluation = evaluate(
            found,
            data or [],
            **options.to_arguments(),
            progress=lambda now: bar(now.model, now.done, now.total),
        )
    print_report(evaluation.report(), json, count_columns(0, sys.maxsize))


def _describe_kept(output: list[Path] | None) -> str:
    """Returns what an interrupted evaluation has left."""
    if not output:
        return "Nothing is kept: with -o FILE.json the same command continues where it was."
    journal = Path(f"{output[0]}.partial")
    if not journal.exists():
        return "Nothing was computed yet."
    return f"{journal} keeps what is done, and the same command continues."

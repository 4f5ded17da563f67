"""`pellucid plot`: the curves of one or more runs in one picture."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli.options import Force
from pellucid.cli.terminal import count_columns, note


class By(StrEnum):
    """What curves lie over."""

    STEP = "step"
    EPOCH = "epoch"


if TYPE_CHECKING:
    from pellucid.training.history.charts import LoggedRun


def plot(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or their logs.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The picture: .html, .svg or .png; otherwise in characters."),
    ] = None,
    smooth: Annotated[
        int | None,
        typer.Option(
            help="Steps to average over; a fiftieth of a run where not given.", min=1, max=1_000_000_000
        ),
    ] = None,
    by: Annotated[
        By, typer.Option(help="What the curves lie over. Epochs are counted where the text has an end.")
    ] = By.STEP,
    force: Force = False,
) -> None:
    """Draw loss, validation loss, learning rate and gradient norm of runs, one over the other; then for each
    layer and recorded step how large the residual stream, the gradients and the updates were.

    A page (.html) shows every value under the pointer, and what the model wrote at its evaluations. A .png
    needs the extra `plot`, which is matplotlib.
    """
    from pellucid.base.formatting import pluralize
    from pellucid.report.file import FIGURE
    from pellucid.report.report import report_figure
    from pellucid.training.history.charts import read_runs, run_figure

    if output is not None:
        FIGURE.check(output, force)
    found = read_runs(runs, lambda name: note(f"{name} has no steps yet and is not drawn."))
    curves = [run.curves for run in found]
    if output is None:
        _print_loss(found, smooth, by.value)
        return
    report_figure(run_figure(found, smooth, by.value)).save(output, force)
    steps = max(float(run.loss.steps[-1]) if len(run.loss) else 0.0 for run in curves)
    print(f"{output}: {pluralize(len(curves), 'run')}, {steps:,.0f} steps")


def _print_loss(runs: "list[LoggedRun]", smooth: int | None, by: str) -> None:
    """Prints the smoothed loss of each run below the other, over the same axes; then the beginning of what
    each model wrote at its evaluations."""
    from dataclasses import replace

    from pellucid.base.columns import shorten
    from pellucid.base.formatting import escape_controls
    from pellucid.report.text import MARGIN, write_text
    from pellucid.training.history.charts import loss_charts

    columns = count_columns(0, 100) - 2
    for chart in loss_charts([run.curves for run in runs], smooth, by):
        title = shorten(chart.title, columns + 2 - len(": loss ↑, epochs →"))
        print(*write_text(replace(chart, title=title), max(columns - MARGIN, 10), 8), sep="\n")
    for excerpt in (excerpt for run in runs for excerpt in run.excerpts()):
        text = " ".join(excerpt.text.split())
        print(shorten(f"{excerpt.title}: {escape_controls(text, keep='')}", columns))

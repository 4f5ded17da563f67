"""`pellucid plot`: the curves of one or more runs in one picture."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pellucid.files import Kind
    from pellucid.training.history.curves import RunCurves

BEGIN = 4096
"""Bytes of a picture in which its mark is."""
AXIS = 12
"""Columns of a picture in characters that are not the picture itself."""


def plot(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or their logs.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The picture: .html, .svg or .png; otherwise in characters."),
    ] = None,
    smooth: Annotated[
        int | None,
        typer.Option(help="Steps to average over; one in fifty by itself.", min=1, max=1_000_000_000),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a picture that this command made.")] = False,
) -> None:
    """Loss, validation, learning rate and gradient norm of runs, one over the other; then layer by layer and
    step by step how large the stream, the gradients and the updates were.

    A page (.html) tells every value under the pointer. A .png needs the extra `plot`, which is matplotlib.
    """
    from pellucid.cli.plot_drawing import panels, png, svg
    from pellucid.cli.plot_page import html
    from pellucid.errors import UsageError
    from pellucid.files import check_output, new_file
    from pellucid.training.history.curves import run_curves
    from pellucid.training.history.layers import maps
    from pellucid.training.history.log import read
    from pellucid.training.saving.run_folder import RECORDER

    writers = {".html": html, ".svg": svg, ".png": png}
    if output is not None:
        if output.name and output.suffix.lower() not in writers:
            raise UsageError(
                f"{output} does not end in .html, .svg or .png, and another picture cannot be drawn: "
                f"use -o {output.stem}.html."
            )
        check_output(output, picture(), force)
    logs = [_log(path) for path in runs]
    curves = [run_curves(name, read(log)) for name, log in zip(_names(runs), logs, strict=True)]
    for run in curves:
        if not len(run):
            print(f"{run.name} has no steps yet; it is left out.", file=sys.stderr)
    logs = [log for log, run in zip(logs, curves, strict=True) if len(run)]
    if not (curves := [run for run in curves if len(run)]):
        raise UsageError("there is nothing to draw: no run has made a step yet.")
    if output is None:
        _characters(curves, smooth)
        return
    drawn = panels(curves, smooth)
    layers = [maps(read(kept)) if (kept := log.with_name(RECORDER)).is_file() else [] for log in logs]
    data = writers[output.suffix.lower()](drawn, [run.name for run in curves], layers)
    with new_file(output, picture(), force) as file:
        file.write(data)
    steps = max(float(run.loss.steps[-1]) if len(run.loss) else 0.0 for run in curves)
    print(f"{output}: {len(curves)} run{'s' * (len(curves) > 1)}, {steps:,.0f} steps")


def picture() -> "Kind":
    """Returns the kind of output that `plot` writes, which it knows by its mark."""
    from pellucid.cli.plot_drawing import MARKS
    from pellucid.files import Kind

    def why_not(path: Path) -> str:
        if not path.is_file():
            return "it is not a file"
        with path.open("rb") as file:
            begin = file.read(BEGIN)
        return "" if MARKS[path.suffix.lower()] in begin else "it has no mark of `pellucid plot`"

    return Kind("a picture", why_not)


def _log(path: Path) -> Path:
    from pellucid.errors import FileError

    if path.is_dir():
        path = path / "log.jsonl"
    if not path.is_file():
        raise FileError(
            f"there is no log {path}: plot wants the folder of a run; `pellucid runs` lists them."
        )
    return path


def _names(runs: list[Path]) -> list[str]:
    """What tells the runs apart: the last part of each path if that is enough, otherwise all of it."""
    from pellucid.format import escape_controls

    folders = [path.parent if path.name == "log.jsonl" else path for path in runs]
    short = [folder.resolve().name for folder in folders]
    names = short if len(set(short)) == len(short) else [str(folder) for folder in folders]
    return [escape_controls(name, keep="\n").replace("\n", " ") for name in names]


def _characters(curves: "list[RunCurves]", smooth: int | None) -> None:
    """The smoothed loss of each run under the other, over the same scales."""
    import shutil

    import numpy as np

    from pellucid.cards.choice_pictures import Lines, drawn
    from pellucid.cli.narrow import shorten
    from pellucid.cli.plot_drawing import Panel, panels

    width = max(min(shutil.get_terminal_size((80, 24)).columns, 100) - AXIS, 10)
    panel: Panel = panels(curves, smooth)[0]
    (left, right), limits = panel.across(), panel.up()
    steps = np.linspace(left, right, 2 * width)
    for i, run in enumerate(curves):
        for line in panel.lines:
            if line.run == i and line.style == "line" and len(line.curve):
                values = np.interp(steps, line.curve.steps, line.curve.values, left=np.nan, right=np.nan)
                name = shorten(run.name, width + AXIS - len(": loss ↑, steps →"))
                picture = Lines(name, "loss", "steps", steps, {name: values}, limits=limits)
                print("\n".join(drawn(picture, width, 8)))

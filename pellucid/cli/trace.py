"""`pellucid trace`: run the specification on a prompt and keep every number in a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli.options import (
    Clip,
    Dtype,
    Force,
    Freeze,
    ModelName,
    Only,
    Prompts,
    Rate,
    Setting,
    Smoothing,
    Steps,
    Targets,
    Update,
    Weights,
    trace_options,
)

if TYPE_CHECKING:
    from pellucid.reference.tape import Tape


def trace(
    model: ModelName,
    prompts: Prompts,
    output: Annotated[Path, typer.Option("--output", "-o", help="The trace file to write, FILE.json.")],
    target: Targets = None,
    backward: Annotated[bool, typer.Option("--backward", help="Append the gradients of the loss.")] = False,
    smoothing: Smoothing = 0.0,
    update: Update = None,
    lr: Rate = None,
    setting: Setting = None,
    clip: Clip = None,
    only: Only = None,
    freeze: Freeze = None,
    steps: Steps = 1,
    path: Annotated[
        str, typer.Option(help="Who computes: reference (the specification), eager, fused or compiled.")
    ] = "reference",
    dtype: Dtype = "float32",
    weights: Weights = None,
    by_head: Annotated[
        bool, typer.Option("--by-head", help="Add attn.head_out: what each head adds to the residual stream.")
    ] = False,
    force: Force = False,
) -> None:
    """Run the specification on a prompt and keep every number in a file.

    With --path the fast engine runs instead, and `pellucid replay` then tells noise from bugs.
    """
    from pellucid.explanation.trace_file import check_trace_output
    from pellucid.explanation.tracing import trace, write_trace
    from pellucid.model import load

    check_trace_output(output, force)
    found = load(model, dtype=dtype, weights=weights)
    options = trace_options(target, smoothing, update, lr, setting, clip, only, freeze, steps)
    run = trace(found, prompts, backward=backward, path=path, by_head=by_head, **options)
    files = write_trace(found, run, output, force)
    print(f"{' and '.join(map(str, files))}: {len(run.tape.steps)} steps, {len(run.tape.values)} tensors")
    if "loss" in run.tape:
        print(_losses(run.tape, steps if update else 0))


def _losses(tape: "Tape", steps: int) -> str:
    from pellucid.base.formatting import format_number, pluralize

    names = ["loss", *(f"loss@{k}" for k in range(1, steps + 1))]
    losses = " → ".join(format_number(float(tape[name]), 5) for name in names)
    return f"loss {losses}" + (f" after {pluralize(steps, 'update')}" if steps else "")

"""`pellucid trace`: run the specification on a prompt and keep every number in a file."""

from pathlib import Path
from typing import Annotated

import typer

from pellucid.cli.options import (
    Dtype,
    Force,
    ModelName,
    Only,
    Prompt,
    Rate,
    Steps,
    Target,
    Update,
    prompt_of,
    training,
)


def trace(
    model: ModelName,
    prompt: Prompt,
    output: Annotated[Path, typer.Option("--output", "-o", help="The trace file to write, FILE.json.")],
    target: Target = None,
    backward: Annotated[bool, typer.Option("--backward", help="Append the gradients of the loss.")] = False,
    update: Update = None,
    lr: Rate = 1.0,
    only: Only = "*",
    steps: Steps = 1,
    path: Annotated[
        str, typer.Option(help="Who computes: reference (the specification), eager, fused or compiled.")
    ] = "reference",
    dtype: Dtype = "float32",
    force: Force = False,
) -> None:
    """Run the specification on a prompt and keep every number in a file.

    With --path the fast engine runs instead, and `pellucid replay` then tells noise from bugs.
    """
    from pellucid.explain.expression import figure
    from pellucid.explain.trace_file import check_trace_output
    from pellucid.workbench import load
    from pellucid.workbench.tracing import write_trace

    check_trace_output(output, force)
    found = load(model, dtype=dtype)
    settings = training(update, lr, only, steps)
    reads, wants = prompt_of(found, prompt), prompt_of(found, target)
    run = found.trace(reads, target=wants, backward=backward, path=path, **settings)
    files = write_trace(found, run, output, force)
    tape = run.tape
    print(f"{' and '.join(map(str, files))}: {len(tape.steps)} steps, {len(tape.values)} tensors")
    if "loss" in tape:
        names = ["loss", *(f"loss@{k}" for k in range(1, steps + 1) if update)]
        losses = [figure(float(tape[name]), 5) for name in names]
        print(f"loss {' → '.join(losses)}" + (f" after {steps} update{'s' * (steps > 1)}" if update else ""))

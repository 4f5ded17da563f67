"""`pellucid trace`: run the specification on a prompt and keep every number in a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pellucid.cli.options import (
    Dtype,
    Force,
    ModelName,
    Prompts,
    Targets,
    UpdateOptions,
    Weights,
    with_options,
)

if TYPE_CHECKING:
    from pellucid.reference.tape import Tape


@with_options
def trace(
    model: ModelName,
    prompts: Prompts,
    output: Annotated[Path, typer.Option("--output", "-o", help="The trace file to write, FILE.json.")],
    target: Targets = None,
    backward: Annotated[bool, typer.Option("--backward", help="Append the gradients of the loss.")] = False,
    *,
    updates: UpdateOptions,
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
    run = trace(found, prompts, backward=backward, path=path, by_head=by_head, **updates.make_run(target))
    files = write_trace(found, run, output, force)
    print(f"{' and '.join(map(str, files))}: {len(run.tape.steps)} steps, {len(run.tape.values)} tensors")
    if "loss" in run.tape:
        print(_losses(run.tape, updates.steps if updates.update else 0))


def _losses(tape: "Tape", steps: int) -> str:
    from pellucid.base.formatting import format_number, pluralize

    names = ["loss", *(f"loss@{k}" for k in range(1, steps + 1))]
    losses = " → ".join(format_number(float(tape[name]), 5) for name in names)
    return f"loss {losses}" + (f" after {pluralize(steps, 'update')}" if steps else "")

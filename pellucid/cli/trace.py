"""`pellucid trace` and `pellucid replay`: keep every number of a run in a file, and recompute those
of a file, a trace's or a ledger's, from the file alone."""

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
    from pellucid.explanation.trace import Trace
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


def replay(
    file: Annotated[Path, typer.Argument(help="A trace file or a ledger file, FILE.json.")],
    model: Annotated[
        str | None,
        typer.Option(
            help="Of a ledger: the model runs again, and every number is compared.", metavar="MODEL"
        ),
    ] = None,
) -> None:
    """Recompute every step of a trace, or every draw of a ledger, from the file alone; exit code 1 where a
    number does not follow.

    With --model the whole text of a ledger is generated again: bit for bit on the same kind of machine.
    """
    from pellucid.generation.ledger.file import check_not_page, is_ledger

    check_not_page(file)
    if is_ledger(file):
        _replay_ledger(file, model)
        return
    if model is not None:
        from pellucid.base.errors import UsageError

        raise UsageError("a trace holds the numbers of its model: omit --model.")
    from pellucid.explanation.tracing import read_trace
    from pellucid.verification.replay import replay as recompute

    trace = read_trace(file)
    if trace.run.get("path", "reference") != "reference":
        _judge(trace)
        return
    done = recompute(trace)
    if done.mismatches:
        first = done.mismatches[0]
        step = trace.tape.steps[first.name]
        count = len(done.mismatches)
        print(f"{done.steps} steps, {count} mismatch{'es' * (count > 1)}. The first:")
        print(f"  {first.name}{list(first.index) or ''} = {step.op.name}({', '.join(step.inputs)})")
        print(f"  the file says {first.got!r}, its inputs give {first.wanted!r}{first.note}")
        raise typer.Exit(1)
    others = done.steps - done.exact
    remark = "all bit for bit" if not others else f"{others} within rounding, the rest bit for bit"
    print(f"{done.steps} steps, 0 mismatches ({remark})")


def _replay_ledger(file: Path, model: str | None) -> None:
    from pellucid.generation.ledger.ledger import Ledger

    ledger = Ledger.read(file)
    if model is None:
        done = ledger.replay()
    else:
        from pellucid.generation.ledger.ledger import open_model_of, replay_with

        done = replay_with(ledger, open_model_of(ledger, model))
    print(done)
    if done.mismatches:
        raise typer.Exit(1)
    if model is None:
        name = ledger.model.path or ledger.model.name
        print(f"the model's numbers too: pellucid replay {file} --model {name}")


def _judge(trace: "Trace") -> None:
    """Of a run of the fast engine: whether each number is its inputs', within the rounding of its type."""
    from pellucid.verification.foreign_values import recorded_values
    from pellucid.verification.judge_run import judge_run

    done = judge_run(trace, recorded_values(trace))
    print(f"a run of the fast engine, {trace.run['path']}, in {trace.run.get('dtype')}")
    if done.bugs:
        print(done)
        raise typer.Exit(1)
    print(f"{len(done.values)} values, each follows from its own inputs within rounding")
    if done.worst and done.worst.units:
        print(f"  the largest error: {done.worst}")

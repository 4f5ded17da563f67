"""`pellucid replay`: recompute the numbers of a file from the file alone: a trace's, or a ledger's."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pellucid.explanation.trace import Trace


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

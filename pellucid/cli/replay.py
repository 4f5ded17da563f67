"""`pellucid replay`: recompute every step of a trace file from the file alone."""

from pathlib import Path
from typing import Annotated

import typer


def replay(file: Annotated[Path, typer.Argument(help="A trace file, FILE.json.")]) -> None:
    """Recompute every step of a trace from the file alone; exit code 1 where a number does not follow."""
    from pellucid.explain.replay import replay as recompute
    from pellucid.explain.trace_file import read

    trace = read(file)
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

"""`gradients`: the parameters whose gradients have the largest norms."""

from typing import Annotated, Any

from pellucid.base.errors import UsageError
from pellucid.base.schema import Range
from pellucid.server.explorer.held_trace import HeldTrace
from pellucid.server.explorer.questions.total import find_total
from pellucid.server.explorer.session import Session


def answer(session: Session, trace: HeldTrace, count: Annotated[int, Range(1, 64)] = 8) -> dict[str, Any]:
    """Returns the `count` parameters with the largest gradient norms, largest first: each with the norm, and
    the cell of its gradient that is largest in magnitude."""
    roles = trace.trace.tape.roles
    names = [name for name, role in roles.items() if role == "param" and f"d.{name}" in roles]
    if not names:
        raise UsageError("this trace has no gradients: run the prompt with a target and gradients.")
    totals = {name: find_total(session, trace, f"d.{name}") for name in names}
    largest = sorted(names, key=lambda name: -totals[name]["norm"])[:count]
    return {
        "gradients": [
            {"name": name, "norm": totals[name]["norm"]} | _find_largest_cell(totals[name])
            for name in largest
        ],
        "count": len(names),
    }


def _find_largest_cell(total: dict[str, Any]) -> dict[str, Any]:
    key = max(("min", "max"), key=lambda key: abs(total[key] or 0.0))
    return {"at": total[f"{key}_at"], "value": total[key]}

"""`difference`: the derivative of the loss at one number as a central difference, beside its gradient."""

from dataclasses import replace
from typing import Annotated, Any

from pellucid.base.errors import TokenError, UsageError
from pellucid.base.schema import Length, Range
from pellucid.explanation.address import parse_cell
from pellucid.explanation.trace import Trace
from pellucid.server.explorer.editing import CellEdit, find_obstacle
from pellucid.server.explorer.held_trace import HeldTrace, RunRequest
from pellucid.server.explorer.session import Session

METHOD = "POST"


def answer(
    session: Session,
    trace: HeldTrace,
    at: Annotated[str, Length(4096)],
    h: Annotated[float, Range(1e-9, 1.0)] = 1e-5,
) -> dict[str, Any]:
    """Returns the loss with the number at `at` lowered and raised by h, the quotient of their difference,
    (loss₊ − loss₋) / (2 h), and the back-propagated gradient; None where the trace has no gradients."""
    found = trace.trace
    name, index = parse_cell(found, at)
    base, _, updates = name.partition("@")
    loss = f"loss@{updates}" if updates else "loss"
    if "loss" not in found.tape:
        raise TokenError("there is no loss: give a target, the text that should follow.")
    is_moved = found.tape.roles[name] in ("param", "act") or found.tape.roles.get(base) == "param"
    if not is_moved or loss not in found.tape:
        raise UsageError(f"the loss is differentiated by a parameter or an activation; {name} is neither.")
    if reason := find_obstacle(found, name):
        raise UsageError(reason)
    number = float(found.value(name)[index])
    moved = [number - h, number + h]
    if not moved[0] < moved[1]:
        raise UsageError(
            f"{name} holds {number:g} there, and h={h:g} is less than its last digit: use a larger h."
        )
    minus, plus = (
        float(_run(session, trace, CellEdit(name, index, value), bool(updates)).value(loss))
        for value in moved
    )
    gradient = f"d.{name}"
    has_gradient = gradient in found.tape
    return {
        "at": found.address(name, index),
        "value": number,
        "h": h,
        "loss_at": loss,
        "minus": minus,
        "plus": plus,
        "quotient": (plus - minus) / (moved[1] - moved[0]),
        "gradient": found.value(gradient)[index] if has_gradient else None,
        "gradient_at": found.address(found.tape.resolve(gradient), index) if has_gradient else None,
    }


def _run(session: Session, trace: HeldTrace, edit: CellEdit, has_updates: bool) -> Trace:
    """Returns the run with one number given; without gradients where the loss comes before them."""
    request: RunRequest = session.add_edit(trace, edit)
    if not has_updates:
        request = replace(request, backward=False, update=None)
    return session.trace_without_holding(request, trace)

"""`edit`: the trace computed again with one number given, and what that did to the prediction."""

from typing import Annotated, Any

import numpy as np

from pellucid.base.schema import Length
from pellucid.server.explorer.arithmetic import show_label
from pellucid.server.explorer.differences import find_differences, list_largest
from pellucid.server.explorer.editing import read_edit
from pellucid.server.explorer.held_trace import HeldTrace
from pellucid.server.explorer.questions import next as likeliest
from pellucid.server.explorer.session import Session

METHOD = "POST"
MOST_DECIMALS = 15
UNCHANGED = "No probability of the next token has changed."


def answer(
    session: Session, trace: HeldTrace, at: Annotated[str, Length(4096)], value: float
) -> dict[str, Any]:
    """Returns the id of the new trace; the values that changed, with the largest change of each and its
    address; how many steps ran; the likeliest next tokens before and after; and one sentence."""
    edit = read_edit(trace.trace, at, value)
    new = session.edit(trace, edit)
    found = list(find_differences(trace.trace, new.trace))
    has_next = "probs" in new.trace.tape and new.trace.value("probs").ndim == 3
    before, after = (likeliest.answer(session, held)["tokens"] if has_next else [] for held in (trace, new))
    return {
        "trace": new.id,
        "parent": trace.id,
        "at": trace.trace.address(edit.name, edit.index),
        "before": trace.trace.value(edit.name)[edit.index],
        "after": new.trace.value(edit.name)[edit.index],
        "changed": list_largest(new.trace, found),
        "changed_count": len(found),
        "steps_run": new.steps_run,
        "steps": len(new.trace.tape.steps),
        "next": {"before": before, "after": after},
        "sentence": describe_change(trace, new) if has_next else "",
    }


def describe_change(before: HeldTrace, after: HeldTrace) -> str:
    """Returns what an edit did to the likeliest next token, in one sentence; where it did nothing before the
    weights were updated, also what it did after that."""
    updates = after.summary.updates
    now = _describe_next(before, after, "probs")
    later = _describe_next(before, after, f"probs@{updates}") if updates and now == UNCHANGED else UNCHANGED
    return now if later == UNCHANGED else f"{UNCHANGED[:-1]} before the update; after it: {later}"


def _describe_next(before: HeldTrace, after: HeldTrace, probs: str) -> str:
    t = likeliest.find_last(after, 0)
    old, new = (held.trace.value(probs)[0, t] for held in (before, after))
    if np.array_equal(old, new, equal_nan=True):
        return UNCHANGED
    if not np.isfinite(new).all():
        return "The probabilities of the next token are no longer finite numbers."
    was, now = int(np.argmax(old)), int(np.argmax(new))
    old_name, name = (show_label(after.trace, "probs", "v", id, (0, t, id)) for id in (was, now))
    move = f"{name} {describe_move(old[now], new[now])}"
    if not np.isfinite(old).all():
        return f"{name} is the likeliest next token, with {100 * new[now]:.1f} %."
    if was == now:
        return f"{move} and stays the likeliest next token."
    old_move = f"{old_name} {describe_move(old[was], new[was])}"
    return f"The likeliest next token changes from {old_name} to {name}: {old_move}, and {move}."


def describe_move(old: float, new: float) -> str:
    """Returns "falls from 75.2 % to 61.0 %", with as many decimals as show the difference.

    >>> describe_move(0.25, 0.250001), describe_move(0.5, 0.5)
    ('rises from 25.0000 % to 25.0001 %', 'keeps 50.0 %')
    """
    formats = [*(f".{decimals}f" for decimals in range(1, MOST_DECIMALS + 1)), ".6g", ".17g"]
    pairs = ((format(100 * old, form), format(100 * new, form)) for form in formats)
    for before, after in pairs:
        if before != after:
            return f"{'falls' if new < old else 'rises'} from {before} % to {after} %"
    return f"keeps {100 * old:.1f} %"

"""`targets`: the loss, and the probability of each target token, before and after the updates."""

from typing import Annotated, Any

from pellucid.base.schema import Range
from pellucid.server.explorer.arithmetic import show_label
from pellucid.server.explorer.held_trace import HeldTrace
from pellucid.server.explorer.session import Session


def answer(session: Session, trace: HeldTrace, count: Annotated[int, Range(1, 256)] = 64) -> dict[str, Any]:
    """Returns the loss and, for each of the first `count` positions with a target, that token with its
    probability and negative log-likelihood: in the first forward pass and, after updates, in the last one."""
    found, tape, updates = trace.trace, trace.trace.tape, trace.summary.updates
    if "loss" not in tape.values:
        return {"losses": [], "targets": [], "count": 0, "updates": 0}
    passes = ["", f"@{updates}"] if updates else [""]

    def number(name: str, index: tuple[int, ...]) -> dict[str, Any]:
        return {"at": found.address(name, index), "value": tape[name][index]}

    places = [(t, int(id)) for t, id in enumerate(tape["targets"][0]) if id >= 0]
    targets = [
        {
            "t": t,
            "after": show_label(found, "probs", "t", t),
            "id": id,
            "label": show_label(found, "probs", "v", id),
            "probs": [number(f"probs{suffix}", (0, t, id)) for suffix in passes],
            "nll": [number(f"nll{suffix}", (0, t)) for suffix in passes],
        }
        for t, id in places[:count]
    ]
    return {
        "losses": [number(f"loss{suffix}", ()) for suffix in passes],
        "targets": targets,
        "count": len(places),
        "updates": updates,
    }

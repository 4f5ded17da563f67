"""`next`: the tokens that are likeliest to follow a position."""

from typing import Annotated, Any

import numpy as np

from pellucid.base.errors import UsageError
from pellucid.base.schema import Range
from pellucid.interpretability.search import find_largest
from pellucid.server.explorer.arithmetic import show_label
from pellucid.server.explorer.held_trace import HeldTrace
from pellucid.server.explorer.session import Session

INDEX = Range(0, 1_000_000)


def answer(
    session: Session,
    trace: HeldTrace,
    t: Annotated[int, INDEX] | None = None,
    count: Annotated[int, Range(1, 64)] = 8,
    b: Annotated[int, INDEX] = 0,
) -> dict[str, Any]:
    """Returns the `count` likeliest tokens after position `t` of prompt `b`, by default its last one: each
    with its address, probability p, rank and surprisal −ln p; and the entropy of the whole distribution in
    nats."""
    found = trace.trace
    if "probs" not in found.tape or found.value("probs").ndim != 3:
        raise UsageError("this trace has no next-token probabilities: it is not that of a language model.")
    probs = found.value("probs")
    b = check_place("b", b, probs.shape[0])
    t = find_last(trace, b) if t is None else check_place("t", t, probs.shape[1])
    p = probs[b, t]
    with np.errstate(divide="ignore", invalid="ignore"):
        surprisal = -np.log(p)
    tokens = [
        {
            "at": found.address("probs", (b, t, int(id))),
            "id": int(id),
            "label": show_label(found, "probs", "v", int(id), (b, t, int(id))),
            "p": p[id],
            "rank": rank,
            "surprisal": surprisal[id],
        }
        for rank, id in enumerate(find_largest(p, count))
    ]
    entropy = float(np.sum(p[p > 0] * surprisal[p > 0]))
    return {
        "t": t,
        "b": b,
        "label": show_label(found, "probs", "t", t, (b, t, 0)),
        "entropy": entropy,
        "tokens": tokens,
        "vocab": p.size,
    }


def check_place(axis: str, i: int, size: int) -> int:
    """Returns an index of an axis; raises where the axis has no such index."""
    if i >= size:
        raise UsageError(f"probs has no {axis}={i}: {axis} has 0…{size - 1}.")
    return i


def find_last(held: HeldTrace, b: int) -> int:
    """Returns the position of the last token of a prompt: a shorter one of a batch is padded."""
    length, ids = int(held.trace.value("probs").shape[1]), held.trace.ids
    return min(len(ids[b]) or length, length) - 1 if b < len(ids) else length - 1

"""`next`: the tokens that are likeliest to follow a position."""

from typing import Annotated, Any

import numpy as np

from pellucid.explorer.question import Range
from pellucid.explorer.session import HeldTrace, Session


def answer(
    session: Session,
    trace: HeldTrace,
    t: Annotated[int, Range(0, 1_000_000)] | None = None,
    count: Annotated[int, Range(1, 64)] = 8,
) -> dict[str, Any]:
    """Returns the `count` likeliest tokens after position `t`, by default the last one: each with its
    address, probability p, rank and surprisal −ln p; and the entropy of the whole distribution in nats."""
    found, probs = trace.trace, trace.trace.value("probs")
    t = probs.shape[1] - 1 if t is None else min(t, probs.shape[1] - 1)
    p = probs[0, t]
    likeliest = np.argsort(-p, kind="stable")[:count]
    with np.errstate(divide="ignore"):
        surprisal = -np.log(p)
    tokens = [
        {
            "at": found.address("probs", (0, t, int(id))),
            "id": int(id),
            "label": found.label("probs", "v", int(id)),
            "p": p[id],
            "rank": rank,
            "surprisal": surprisal[id],
        }
        for rank, id in enumerate(likeliest)
    ]
    entropy = float(np.sum(p[p > 0] * surprisal[p > 0]))
    return {
        "t": t,
        "label": found.label("probs", "t", t),
        "entropy": entropy,
        "tokens": tokens,
        "vocab": p.size,
    }

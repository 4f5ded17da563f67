"""`attention`: the keys to which each query of one head attends most."""

from typing import Annotated, Any

import numpy as np

from pellucid.base.errors import UsageError
from pellucid.base.schema import Range
from pellucid.interpretability.search import find_largest
from pellucid.server.explorer.arithmetic import show_label
from pellucid.server.explorer.held_trace import HeldTrace
from pellucid.server.explorer.session import Session

BEFORE = ("masked", "scores")
"""What a pattern is the softmax of, the nearest first."""


def answer(
    session: Session,
    trace: HeldTrace,
    layer: Annotated[int, Range(0, 100_000)],
    head: Annotated[int, Range(0, 100_000)],
    t: Annotated[int, Range(0, 1_000_000)] | None = None,
    rows: Annotated[int, Range(1, 32)] = 16,
    count: Annotated[int, Range(1, 16)] = 4,
) -> dict[str, Any]:
    """Returns, for `rows` queries from position `t` (by default the last ones), the `count` keys with the
    largest share of the attention pattern, largest first, and the sum of the further shares; and the names of
    the scores of this layer."""
    found, prefix = trace.trace, f"blocks.{layer}.attn."
    name = prefix + "pattern"
    if name not in found.tape.values or found.value(name).ndim != 4:
        raise UsageError(f"block {layer} has no attention pattern [b, h, t, s] in this trace.")
    pattern = found.value(name)
    if head >= pattern.shape[1]:
        raise UsageError(f"there is no head {head}: block {layer} has heads 0 to {pattern.shape[1] - 1}.")
    length = pattern.shape[2]
    t = max(length - rows, 0) if t is None else min(t, length - 1)
    queries = []
    for query in range(t, min(t + rows, length)):
        shares = pattern[0, head, query]
        likeliest = find_largest(shares, int(np.sum(shares > 0))).tolist()
        queries.append(
            {
                "t": query,
                "label": show_label(found, name, "t", query),
                "keys": [
                    {
                        "s": s,
                        "label": show_label(found, name, "s", s),
                        "at": found.address(name, (0, head, query, s)),
                        "value": shares[s],
                    }
                    for s in likeliest[:count]
                ],
                "folded": max(len(likeliest) - count, 0),
                "rest": np.sum(shares[likeliest[count:]]),
            }
        )
    return {
        "pattern": name,
        "before": [prefix + part for part in BEFORE if prefix + part in found.tape.values],
        "queries": queries,
        "up": max(t - rows, 0) if t else None,
        "down": t + rows if t + rows < length else None,
        "length": length,
    }

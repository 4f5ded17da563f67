"""`compare`: where two traces first differ, and by how much each value differs."""

from typing import Any

from pellucid.server.explorer.differences import MOST_LISTED, find_differences, list_largest
from pellucid.server.explorer.held_trace import HeldTrace
from pellucid.server.explorer.session import Session


def answer(session: Session, a: HeldTrace, b: HeldTrace) -> dict[str, Any]:
    """Returns the first value of `b`, in program order, that differs from the one of `a`, and the largest
    difference of each value with its address, the same in both; values that only one has, or in another
    shape, are listed by name."""
    found = list(find_differences(a.trace, b.trace))
    here, there = a.trace.tape.values, b.trace.tape.values
    apart = {
        "only_a": [name for name in here if name not in there],
        "only_b": [name for name in there if name not in here],
        "other_shape": [name for name in there if name in here and here[name].shape != there[name].shape],
    }
    return {
        "a": a.id,
        "b": b.id,
        "first": next(iter(list_largest(b.trace, found[:1])), None),
        "differences": list_largest(b.trace, found),
        "count": len(found),
        "same": sum(name in here for name in there) - len(found) - len(apart["other_shape"]),
        **{key: {"names": names[:MOST_LISTED], "count": len(names)} for key, names in apart.items()},
    }

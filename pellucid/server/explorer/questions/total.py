"""`total`: the count, sum, extremes and norm of a whole value, or of all values under a prefix."""

from typing import Annotated, Any

import numpy as np

from pellucid.base.dtypes import Array
from pellucid.base.errors import UsageError
from pellucid.base.schema import Length
from pellucid.explanation.address import parse
from pellucid.explanation.trace import Trace
from pellucid.server.explorer.held_trace import HeldTrace
from pellucid.server.explorer.session import Session

MOST_VALUES = 128
"""Values under a prefix that one answer sums up, the first ones in program order."""


def answer(
    session: Session,
    trace: HeldTrace,
    name: Annotated[str, Length(400)] | None = None,
    under: Annotated[str, Length(400)] | None = None,
) -> dict[str, Any]:
    """Returns the totals of the value `name`, or of the values `under` a prefix such as blocks.5: the number
    of values that follow beyond 128 is `omitted`. Where some numbers are not finite, sum, extremes and norm
    are those of the finite ones, and the others are counted."""
    found = trace.trace
    if (name is None) == (under is None):
        raise UsageError("give either name, of one value, or under, a prefix such as blocks.5.")
    if name is not None:
        part = parse(found, name)
        if "[" in name:
            raise UsageError(f"a total is of a whole value: write {part.name}, without the brackets.")
        return {"totals": {name: find_total(session, trace, part.name)}, "omitted": 0}
    inside = [one for one in found.tape.values if one == under or one.startswith(f"{under}.")]
    totals = {one: find_total(session, trace, one) for one in inside[:MOST_VALUES]}
    return {"totals": totals, "omitted": len(inside) - len(totals)}


def find_total(session: Session, held: HeldTrace, name: str) -> dict[str, Any]:
    """Returns the totals of a value; they are computed once for all traces that hold the same array."""
    value = held.trace.value(name)
    if name not in held.totals:
        same = [
            other.totals[name]
            for other in list(session.traces.values())
            if name in other.totals and other.trace.tape.values.get(name) is value
        ]
        held.totals[name] = same[0] if same else compute_total(held.trace, name)
    return held.totals[name]


def compute_total(trace: Trace, name: str) -> dict[str, Any]:
    """Returns count, sum, norm √Σx², min and max of a value, with the addresses of the first such cells."""
    value = trace.value(name)
    found: dict[str, Any] = {"count": value.size, "not_finite": {}}
    with np.errstate(all="ignore"):
        total, finite, places = value.sum(), value.reshape(-1), None
        if not np.isfinite(total):  # a sum of finite numbers may overflow, so each is looked at
            found["not_finite"] = _count_others(value)
            places = np.flatnonzero(np.isfinite(finite))
            finite = finite[places]
            total = finite.sum()
        found |= {"sum": total, "norm": compute_norm(finite)}
    for key, find in (("min", np.argmin), ("max", np.argmax)):
        found[key], found[f"{key}_at"] = None, None
        if finite.size:
            i = int(find(finite))
            cell = np.unravel_index(i if places is None else int(places[i]), value.shape)
            found[key], found[f"{key}_at"] = finite[i], trace.address(name, tuple(map(int, cell)))
    return found


def _count_others(value: Array) -> dict[str, int]:
    counts = {"nan": np.isnan(value), "inf": value == np.inf, "-inf": value == -np.inf}
    return {kind: int(found.sum()) for kind, found in counts.items() if found.any()}


def compute_norm(flat: Array) -> float:
    """Returns √Σx² of numbers [N], also where a square overflows or vanishes."""
    flat = flat.astype(np.float64, copy=False)
    square = float(np.dot(flat, flat))
    if 1e-280 < square < 1e300:
        return float(np.sqrt(square))
    largest = float(np.abs(flat).max(initial=0.0))
    return largest * float(np.linalg.norm(flat / largest)) if largest else 0.0

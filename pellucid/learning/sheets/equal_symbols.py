"""Symbols in the formulas of a sheet without numbers of their own on it, and equal to others in this run: as
the masked scores M equal the scores S in a row that no mask changes, and O equals Z with one head.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from pellucid.explanation.formula import find_local_name
from pellucid.explanation.trace import Trace
from pellucid.verification.mistakes.variant import base_name


def find_equal_symbols(trace: Trace, symbols: Mapping[str, str], steps: Iterable[str]) -> list[str]:
    """Returns "M = S" for each symbol that a formula of `steps` reads and that no number of the sheet has;
    `symbols` are those of the sheet's numbers by key."""
    printed = {key.partition("[")[0]: symbol.partition("[")[0] for key, symbol in symbols.items()}
    found: dict[str, str] = {}
    for name in dict.fromkeys(steps):
        for read in trace.tape.steps[name].inputs:
            symbol = trace.about(find_local_name(trace, read, name)).symbol
            source = _find_source(trace, read, printed)
            if source and symbol not in (*printed.values(), trace.about(source).symbol):
                is_masked = not np.isfinite(trace.value(read)).all()
                found.setdefault(symbol, f"{printed[source]}{' where it is not −∞' if is_masked else ''}")
    return [f"{symbol} = {other}" for symbol, other in found.items()]


def _find_source(trace: Trace, name: str, printed: Mapping[str, str]) -> str | None:
    """Returns the printed value whose numbers a value has: it is passed on, or not changed by an update."""
    if name in printed:
        return name
    if base_name(name) in printed and _are_equal(trace, name, base_name(name)):
        return base_name(name)
    step = trace.tape.steps.get(name)
    same = (read for read in step.inputs if _are_equal(trace, name, read)) if step else iter(())
    return next((source for read in same if (source := _find_source(trace, read, printed))), None)


def _are_equal(trace: Trace, name: str, other: str) -> bool:
    """Tests whether all finite numbers of a value are those of another, axes of length 1 apart."""
    values, others = (np.squeeze(trace.value(of)) for of in (name, other))
    is_finite = np.isfinite(values)
    return (
        values.shape == others.shape
        and is_finite.any()
        and np.array_equal(values[is_finite], others[is_finite])
    )

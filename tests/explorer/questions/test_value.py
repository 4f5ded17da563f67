"""`value` shows a window of a value: the numbers of the trace, each with the address that its place has."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from pellucid.explain.address import parse
from pellucid.explain.trace import Trace
from pellucid.explorer.session import Session
from pellucid.reference.tape import Tape


def make_session(*shape: int) -> Session:
    tape = Tape()
    tape.constant("x", np.arange(float(np.prod(shape, dtype=int))).reshape(shape))
    return Session(trace=Trace(tape))


def list_cells(found: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the number at each address of a window."""
    return {
        found["at"].replace("{row}", str(row["i"])).replace("{col}", str(col["i"])): number
        for row, numbers in zip(found["rows"], found["numbers"], strict=True)
        for col, number in zip(found["cols"], numbers, strict=True)
    }


def check_window(trace: Trace, found: Mapping[str, Any]) -> None:
    """Every address of a window parses back to the cell whose number stands there."""
    for at, number in list_cells(found).items():
        cell = parse(trace, at).cell
        assert cell is not None
        true = float(trace.value(found["name"])[cell])
        assert number == true or str(true) == number


@pytest.mark.parametrize("shape", [(), (1,), (5,), (300,), (1, 1), (9, 8), (18, 16), (20, 19), (2, 1, 3, 30)])
def test_windows_cover_a_value_and_each_address_is_that_of_its_number(shape: tuple[int, ...]) -> None:
    session = make_session(*shape)
    trace, seen, todo = session.get_trace(None).trace, dict[str, Any](), list[str]()
    todo += [trace.address("x", (*index, 0, 0)[: len(shape)]) for index in np.ndindex(shape[:-2])]
    done = set[str]()
    while todo:
        if (at := todo.pop()) not in done:
            done.add(at)
            found = session.ask("value", at=at)
            check_window(trace, found)
            seen |= list_cells(found)
            todo += [found[side] for side in ("up", "down", "left", "right") if found[side]]
    assert sorted(seen.values()) == list(range(int(np.prod(shape, dtype=int))))


def test_a_value_that_fits_is_one_window() -> None:
    found = make_session(9, 8).ask("value", at="x")
    assert (found["row_size"], found["col_size"], found["at"]) == (9, 8, "x[i={row},j={col}]")
    assert not any(found[side] for side in ("up", "down", "left", "right"))

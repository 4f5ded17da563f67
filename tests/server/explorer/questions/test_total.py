"""`total` sums up whole values, once for each array."""

import math

import numpy as np
import pytest

from pellucid.base.errors import AddressError, UsageError
from pellucid.explanation.address import parse
from pellucid.explanation.trace import Trace
from pellucid.reference.tape import Tape
from pellucid.server.explorer.held_trace import RunRequest
from pellucid.server.explorer.session import Session


def make_session(**values: object) -> Session:
    tape = Tape()
    for name, value in values.items():
        tape.constant(name, value)
    return Session(trace=Trace(tape))


def test_the_totals_are_those_of_the_value_and_its_extremes_stand_at_their_addresses() -> None:
    session = Session.open("abcd")
    trace = session.run(RunRequest("A B", "C", backward=True)).trace
    for name in trace.tape.values:
        found, value = session.ask("total", name=name)["totals"][name], trace.value(name)
        if np.isfinite(value).all():
            assert (found["count"], found["sum"]) == (value.size, value.sum()) and not found["not_finite"]
            assert found["norm"] == pytest.approx(np.sqrt((value.astype(float) ** 2).sum()))
            for key in ("min", "max"):
                cell = parse(trace, found[f"{key}_at"]).cell
                assert value[cell] == found[key] == getattr(value, key)()


def test_numbers_that_are_not_finite_are_counted_and_left_out_of_the_rest() -> None:
    session = make_session(x=[[3.0, -math.inf], [math.nan, 4.0], [math.inf, -math.inf]])
    assert session.ask("total", name="x")["totals"]["x"] == {
        "count": 6, "not_finite": {"nan": 1, "inf": 1, "-inf": 2}, "sum": 7.0, "norm": 5.0,
        "min": 3.0, "min_at": "x[i=0,j=0]", "max": 4.0, "max_at": "x[i=1,j=1]",
    }  # fmt: skip


@pytest.mark.parametrize("value", [[-math.inf], np.zeros((0, 3))])
def test_a_value_without_finite_numbers_has_no_extremes(value: object) -> None:
    found = make_session(x=value).ask("total", name="x")["totals"]["x"]
    assert found["min"] is found["max_at"] is None and found["sum"] == found["norm"] == 0


@pytest.mark.parametrize("scale", [1e200, 1e-200, 5e-324])
def test_a_norm_neither_overflows_nor_vanishes(scale: float) -> None:
    found = make_session(x=[3 * scale, 4 * scale]).ask("total", name="x")["totals"]["x"]
    assert found["norm"] == pytest.approx(5 * scale)


def test_finite_numbers_whose_sum_overflows_are_all_finite() -> None:
    found = make_session(x=[1.5e308, 1.5e308]).ask("total", name="x")["totals"]["x"]
    assert (found["sum"], found["max"], found["not_finite"]) == ("inf", 1.5e308, {})


def test_a_prefix_ends_at_a_dot_and_is_cut_after_128_values() -> None:
    session = make_session(**{f"blocks.1.x{i}": 1.0 for i in range(130)}, **{"blocks.10.x": 2.0})
    found = session.ask("total", under="blocks.1")
    assert len(found["totals"]) == 128 and found["omitted"] == 2
    assert list(session.ask("total", under="blocks.10")["totals"]) == ["blocks.10.x"]
    assert session.ask("total", under="nothing") == {"totals": {}, "omitted": 0}


def test_traces_that_hold_the_same_array_share_its_totals() -> None:
    session = make_session(x=[1.0, 2.0])
    other = Tape()
    other.constant("x", session.traces["t1"].trace.value("x"))
    kept = session.ask("total", trace="t1", name="x")["totals"]["x"]
    second = session._hold(Trace(other))
    session.ask("total", name="x")
    assert second.totals["x"] is session.traces["t1"].totals["x"] and kept == second.totals["x"]


def test_an_alias_has_the_totals_of_its_value() -> None:
    session = Session.open("abcd")
    session.run(RunRequest("A B"))
    found = session.ask("total", name="blocks.0.resid_pre")["totals"]
    assert found["blocks.0.resid_pre"] == session.ask("total", name="embedded")["totals"]["embedded"]


@pytest.mark.parametrize("given", [{}, {"name": "x", "under": "x"}, {"name": "x[0]"}, {"under": "x" * 401}])
def test_parameters_that_do_not_name_one_value_or_prefix_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        make_session(x=[1.0, 2.0]).ask("total", **given)


def test_an_unknown_name_gets_the_message_of_explain() -> None:
    session = Session.open("abcd")
    session.run(RunRequest("A B"))
    with pytest.raises(AddressError, match="probs"):
        session.ask("total", name="prob")

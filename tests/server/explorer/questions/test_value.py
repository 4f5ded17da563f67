"""`value` shows a window of a value: the numbers of the trace, each with the address that its place has."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from pellucid.base.errors import PellucidError
from pellucid.explanation.address import parse
from pellucid.explanation.trace import Trace
from pellucid.reference.tape import Tape
from pellucid.server.explorer.held_trace import RunRequest
from pellucid.server.explorer.session import Session


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


def test_every_value_of_a_trained_trace_has_a_window() -> None:
    """Parameters, activations, gradients, updates and the values after them, in shapes of every rank."""
    session = Session.open("abcd")
    trace = session.run(RunRequest("A B", "C", backward=True, update="adamw", lr=1.0)).trace
    for name in (*trace.tape.values, *trace.tape.aliases):
        found = session.ask("value", at=name)
        check_window(trace, found)
        assert len(list_cells(found)) == trace.value(name).size
    assert {"d.logits", "probs@1", "d.embed.weight", "embed.weight@1", "loss"} <= {
        *trace.tape.values, *trace.tape.aliases,
    }  # fmt: skip


def test_a_vector_is_one_row_and_a_scalar_one_cell() -> None:
    vector, scalar = (make_session(*shape).ask("value", at="x") for shape in ((3,), ()))
    assert (vector["row_axis"], vector["col_axis"], vector["at"]) == (None, "i", "x[i={col}]")
    assert vector["numbers"] == [[0.0, 1.0, 2.0]] and vector["rows"] == [{"i": 0, "label": None}]
    assert (scalar["row_axis"], scalar["col_axis"], scalar["at"], scalar["numbers"]) == (
        None, None, "x", [[0.0]],
    )  # fmt: skip


def test_axes_of_size_1_are_not_in_the_address() -> None:
    found = make_session(1, 1, 3).ask("value", at="x")
    assert (found["at"], found["fixed"], found["row_size"]) == ("x[k={col}]", [], 1)


def test_leading_axes_are_fixed_with_their_sizes() -> None:
    found = make_session(2, 3, 4, 5).ask("value", at="x[i=1,j=2]")
    assert [(one["axis"], one["i"], one["size"]) for one in found["fixed"]] == [("i", 1, 2), ("j", 2, 3)]
    assert found["numbers"][0][0] == 1 * 60 + 2 * 20


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (0, 2, 2), (2, 0, 2)])
def test_an_empty_value_has_an_empty_window(shape: tuple[int, ...]) -> None:
    found = make_session(*shape).ask("value", at="x")
    assert (found["numbers"], found["rows"], found["cols"]) == ([], [], [])
    assert not any(found[side] for side in ("up", "down", "left", "right"))


def test_the_last_window_of_a_huge_axis_ends_at_its_end() -> None:
    session = make_session(2, 1_000_003)
    found = session.ask("value", at="x[i=0,j=1000000]")
    assert [col["i"] for col in found["cols"]] == [1_000_000, 1_000_001, 1_000_002]
    assert found["right"] is None and found["left"] == "x[i=0,j=999992]"


def test_a_weight_that_formulas_use_transposed_is_shown_so() -> None:
    session = Session.open("abcd")
    trace = session.run(RunRequest("A B")).trace
    name = "blocks.0.attn.q_proj.weight"
    found = session.ask("value", at=name)
    assert found["is_turned"] and (found["row_axis"], found["col_axis"]) == ("in", "out")
    assert found["numbers"] == trace.value(name).T.tolist()


def test_each_prompt_of_a_batch_has_its_own_labels() -> None:
    session = Session.open("abcd")
    trace = session.run(RunRequest(["A B", "C"])).trace  # type: ignore[arg-type]
    for b, tokens in enumerate((["A", "B"], ["C", "(padding)"])):
        found = session.ask("value", at=f"probs[b={b}]")
        check_window(trace, found)
        assert [row["label"] for row in found["rows"]] == tokens
        assert found["fixed"] == [{"axis": "b", "i": b, "size": 2, "label": ("A B", "C")[b]}]


def test_labels_are_whole_and_characters_that_reorder_text_are_escaped() -> None:
    tape = Tape()
    tape.describe(tape.constant("x", np.zeros(3)), "v")
    found = Session(trace=Trace(tape, {}, {"v": ["a\u202eb", "\x1b[2J", "long " * 20]})).ask("value", at="x")
    assert [col["label"] for col in found["cols"]] == ["a\\u202eb", "\\x1b[2J", "long " * 20]


def test_only_cells_whose_bits_differ_from_the_unedited_run_are_marked() -> None:
    session = make_session(2, 3)
    first = session.traces["t1"]
    edited = Tape()
    edited.constant("x", [[0.0, 1.0, 2.5], [-0.0, 4.0, 5.0]])
    edited.constant("y", [1.0])
    middle = session._hold(first.trace, parent="t1")
    last = session._hold(Trace(edited), parent=middle.id)
    first.trace.tape.values["x"][1, 0] = 0.0
    assert session.ask("value", trace=last.id, at="x")["changed"] == [[0, 2], [1, 0]]
    assert session.ask("value", trace=last.id, at="x[i=0,j=1]", cols=2)["changed"] == [[0, 1]]
    assert session.ask("value", trace=last.id, at="y")["changed"] == []
    assert session.ask("value", trace=middle.id, at="x")["changed"] == []
    assert session.ask("value", trace="t1", at="x")["changed"] == []


def test_an_edit_marks_what_it_changed_and_nothing_else() -> None:
    session = Session.open("abcd")
    first = session.run(RunRequest("A B")).trace
    one = session.ask("edit", at="blocks.0.attn.pattern[t=1,s=0]", value=0.9)["trace"]
    two = session.ask("edit", at="embed.weight[v=1,c=0]", value=3.0)["trace"]
    assert session.ask("value", trace=one, at="blocks.0.attn.pattern")["changed"] == [[1, 0]]
    for id in (one, two):
        trace = session.traces[id].trace
        for name, value in trace.tape.values.items():
            found, before = (
                session.ask("value", trace=id, at=name),
                first.value(name.removesuffix(".computed")),
            )
            differs = (value.T != before.T if found["is_turned"] else value != before).reshape(-1)
            places = [r * len(found["cols"]) + c for r, c in found["changed"]]
            assert places == np.flatnonzero(differs).tolist()


def test_not_a_number_is_unchanged_where_its_bits_are() -> None:
    session = make_session(2)
    copies = [Tape(), Tape()]
    for tape in copies:
        tape.constant("x", [np.nan, -np.inf])
    root = session._hold(Trace(copies[0]))
    found = session.ask("value", trace=session._hold(Trace(copies[1]), parent=root.id).id, at="x")
    assert found["changed"] == [] and found["numbers"] == [["nan", "-inf"]]


@pytest.mark.parametrize(
    "given",
    [{"rows": 0}, {"rows": 33}, {"cols": 33}, {"cols": True}, {"at": "y"}, {"at": "x[i=9]"}, {"at": ""}],
)
def test_a_wrong_address_or_size_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(PellucidError):
        make_session(2, 3).ask("value", **({"at": "x"} | given))


def test_a_window_has_at_most_1024_numbers() -> None:
    found = make_session(50, 50).ask("value", at="x", rows=32, cols=32)
    assert (len(found["rows"]), len(found["cols"])) == (32, 32)

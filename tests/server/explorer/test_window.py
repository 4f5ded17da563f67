"""Windows: every cell of a value is in the window that is found for it, and neighbors reach them all."""

import numpy as np
import pytest

from pellucid.explanation.address import parse
from pellucid.explanation.trace import Trace
from pellucid.model import load
from pellucid.reference.tape import Tape
from pellucid.server.explorer.window import find_window


def make_trace(*shape: int) -> Trace:
    tape = Tape()
    tape.constant("x", np.arange(float(np.prod(shape, dtype=int))).reshape(shape))
    return Trace(tape)


@pytest.mark.parametrize("shape", [(), (5,), (20,), (3, 4), (1, 1), (20, 19), (2, 11, 9), (2, 1, 3, 30)])
def test_every_cell_is_in_view_of_its_window_and_of_the_template(shape: tuple[int, ...]) -> None:
    trace = make_trace(*shape)
    for index in np.ndindex(shape):
        window = find_window(trace, "x", index)
        place = window.find_place(index)
        assert place is not None and window.numbers[place] == trace.value("x")[index]
        assert window.numbers.shape == (min(9, (1, 1, *shape)[-2]), min(8, (1, 1, *shape)[-1]))
        at = window.template.format(row=window.rows[place[0]], col=window.cols[place[1]])
        assert parse(trace, at).cell == index
        assert parse(trace, window.address).cell == window.first
        assert find_window(trace, "x", window.first).find_place(window.first) is not None


def test_neighbors_are_told_apart() -> None:
    found = find_window(make_trace(30, 30), "x", (10, 10)).find_neighbors()
    assert {way: window and window.first for way, window in found.items()} == {
        "up": (0, 8),
        "down": (18, 8),
        "left": (9, 0),
        "right": (9, 16),
    }


def test_a_matrix_that_formulas_use_transposed_is_shown_transposed() -> None:
    trace = load("abcd").trace("A B")
    name = "blocks.0.attn.q_proj.weight"
    window = find_window(trace, name, (1, 0))
    assert window.is_turned and window.template == f"{name}[out={{col}},in={{row}}]"
    assert window.find_place((1, 0)) == (0, 1) and (window.numbers == trace.value(name).T).all()


def test_marks_are_cut_at_the_edges_of_the_window() -> None:
    window = find_window(make_trace(30, 30), "x", (10, 10))
    assert window.find_marks(range(30), range(9, 10)) == (0, 8, 1, 1)
    assert window.find_marks(range(12, 14), range(30)) == (3, 4, 0, 7)
    assert window.find_marks(range(3), range(30)) is None

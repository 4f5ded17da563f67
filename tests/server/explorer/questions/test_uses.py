"""`uses` lists the steps that read a value, each with a cell that reads the asked one."""

import numpy as np
import pytest

from pellucid.base.errors import AddressError
from pellucid.explanation.address import parse
from pellucid.explanation.trace import Trace
from pellucid.reference.ops import find_op
from pellucid.reference.tape import Step, Tape
from pellucid.reference.training import forward
from pellucid.server.explorer.held_trace import RunRequest
from pellucid.server.explorer.session import Session
from tests.reference.models import CONFIGS, IDS, TARGETS, weights


def make_session(name: str) -> Session:
    tape = forward(CONFIGS[name], weights(CONFIGS[name]), IDS, TARGETS)
    tape.backward(tape.ref("loss"))
    return Session(trace=Trace(tape))


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_the_readers_of_every_value_are_the_steps_that_name_it(name: str) -> None:
    session = make_session(name)
    trace = session.get_trace(None).trace
    for value in trace.tape.values:
        found = session.ask("uses", name=value)
        readers = [reader for reader, step in trace.tape.steps.items() if value in step.inputs]
        assert [reader["name"] for reader in found["readers"]] == readers
        assert found["count"] == len(readers)
        assert found["gradient"] is None or found["gradient"] in trace.tape.values
        for reader in found["readers"]:
            assert parse(trace, reader["at"]).cell is not None


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_reader_s_cell_reads_the_asked_cell(name: str) -> None:
    session, rng = make_session(name), np.random.default_rng(0)
    trace, count, reading = session.get_trace(None).trace, 0, 0
    for value, array in trace.tape.values.items():
        index = tuple(int(rng.integers(size)) for size in array.shape)
        for reader in session.ask("uses", name=value, at=trace.address(value, index))["readers"]:
            step, cell = trace.tape.steps[reader["name"]], parse(trace, reader["at"]).cell
            assert cell is not None
            shapes = [trace.value(read).shape for read in step.inputs]
            boxes = step.op.reads(cell, shapes, step.attrs).boxes
            reading += any(
                read == value and all(i in axis for i, axis in zip(index, box, strict=True))
                for read, box in zip(step.inputs, boxes, strict=True)
            )
            count += 1
    assert reading > 0.9 * count > 100


def test_an_alias_is_used_as_the_value_that_it_names() -> None:
    session = Session.open("abcd")
    session.run(RunRequest("A B", target="C", backward=True))
    found = session.ask("uses", name="blocks.0.resid_pre")
    assert found["name"] == "embedded" and found["gradient"] == "d.embedded"
    assert [reader["op"] for reader in found["readers"][:3]] == ["einsum"] * 3
    assert session.ask("uses", name="ids")["gradient"] is None


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AddressError):
        make_session("bare").ask("uses", name="nothing")


def test_a_step_of_a_file_that_cannot_run_is_named_by_its_first_cell() -> None:
    tape = Tape()
    for name in ("x", "y"):
        tape.constant(name, np.zeros((2, 2, 2)))
    ids = tape.constant("ids", [0, 1])
    tape.steps["y"] = Step("y", find_op("take"), ("x", ids.name), {}, "fwd")
    found = Session(trace=Trace(tape)).ask("uses", name="x", at="x[1,1,1]")
    assert [reader["at"] for reader in found["readers"]] == ["y[i=0,j=0,k=0]"]

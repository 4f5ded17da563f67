"""`names` lists every value of a trace, and before there is one, the values that the config will have."""

import json

import numpy as np
import pytest

from pellucid.base.errors import UsageError
from pellucid.explanation.trace import Trace
from pellucid.reference.tape import Tape
from pellucid.server.explorer.held_trace import RunRequest
from pellucid.server.explorer.progress import TraceProgress
from pellucid.server.explorer.session import Session


@pytest.fixture(scope="module")
def session() -> Session:
    session = Session.open("abcd")
    session.run(RunRequest("A B", "C", backward=True, update="adamw", lr=1.0, steps=2))
    return session


def test_every_value_is_listed_with_its_shape_role_operation_and_step(session: Session) -> None:
    found, tape = session.ask("names"), session.traces["t1"].trace.tape
    assert [entry[0] for entry in found["values"]] == list(tape.values)
    steps = list(tape.steps)
    for name, shape, role, op, step in found["values"]:
        assert (tuple(shape), role) == (tape[name].shape, tape.roles[name])
        assert op == (tape.steps[name].op.name if name in tape.steps else None)
        assert step is None if op is None else steps[step] == name
    assert (found["aliases"], found["steps"], found["omitted"]) == (tape.aliases, len(steps), 0)


def test_a_glossary_row_stands_for_all_layers_and_updates(session: Session) -> None:
    about = session.ask("names")["about"]
    row = {"symbol": "p@k", "axes": ["b", "t", "v"], "meaning": "next-token probabilities after update k"}
    assert about["probs@k"] == row
    assert about["d.blocks.L.attn.q"]["symbol"] == "dQ"
    assert not [row for row in about if "@1" in row or "blocks.0" in row]


def test_a_prefix_narrows_the_list(session: Session) -> None:
    found = session.ask("names", under="d.blocks.0.attn.q")["values"]
    assert found and all(entry[0].startswith("d.blocks.0.attn.q") for entry in found)


def test_a_trace_of_many_names_is_cut_and_says_so() -> None:
    tape = Tape()
    for i in range(20_000):
        tape.constant(f"ä{i:040}", 1.0)
    found = Session(trace=Trace(tape)).ask("names")
    assert len(json.dumps(found, ensure_ascii=False).encode()) <= 500_000
    assert len(found["values"]) + found["omitted"] == 20_000 and found["omitted"]


def test_before_a_trace_the_parameters_of_the_config_are_listed() -> None:
    found = Session.open("abcd").ask("names")
    assert ["embed.weight", [4, 2], "param", None, None] in found["values"]


def test_while_the_first_prompt_runs_its_shapes_are_those_of_the_trace() -> None:
    session = Session.open("abcd")
    session.progress = TraceProgress([0, 1], 11)
    before = session.ask("names")["values"]
    session.progress = None
    session.run(RunRequest("A B"))
    shapes = {entry[0]: entry[1] for entry in session.ask("names")["values"]}
    assert shapes == {entry[0]: entry[1] for entry in before}
    assert {entry[2] for entry in before} == {"param", "act"}


def test_without_a_model_and_a_trace_there_are_no_names() -> None:
    with pytest.raises(UsageError):
        Session().ask("names")


def test_a_value_without_an_entry_in_the_glossary_is_its_own_row() -> None:
    tape = Tape()
    tape.constant("x", np.zeros((2, 3)))
    about = Session(trace=Trace(tape)).ask("names")["about"]
    assert about["x"] == {"symbol": "x", "axes": ["i", "j"], "meaning": ""}

"""What can be edited, and how edits become numbers of a run; an edited trace keeps saying what was edited."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.base.errors import AddressError, UsageError
from pellucid.explanation.derive import derive
from pellucid.explanation.reuse import ReusingTape, has_same_bits
from pellucid.explanation.trace import Trace
from pellucid.explanation.tracing import read_trace, write_trace
from pellucid.formats import model_folder
from pellucid.formats.pretrained import Pretrained, Provenance
from pellucid.reference.tape import Tape
from pellucid.server.explorer.editing import (
    MOST_EDITS,
    CellEdit,
    find_computed,
    find_obstacle,
    get_edited,
    group_edits,
    read_described_edits,
    read_edit,
)
from pellucid.server.explorer.held_trace import HeldTrace, RunRequest
from pellucid.server.explorer.session import Session
from pellucid.verification.replay import replay
from tests.explanation.test_tracing import CONFIG, IDS
from tests.reference.models import weights

PATTERN = "blocks.0.attn.pattern"
RUNS = [
    RunRequest("A B"),
    RunRequest("A B", target="C", backward=True),
    RunRequest("A B", target="C", update="sgd", lr=0.5, steps=2),
]


def edit(session: Session, held: HeldTrace, at: str, value: float) -> HeldTrace:
    return session.edit(held, read_edit(held.trace, at, value))


def equals(a: Trace, b: Trace) -> bool:
    return list(a.tape.values) == list(b.tape.values) and all(
        has_same_bits(a.tape.values[name], value) for name, value in b.tape.values.items()
    )


@pytest.fixture
def session() -> Session:
    return Session.open("abcd")


def test_an_edited_number_says_that_it_was_given_and_what_its_formula_gives(session: Session) -> None:
    held = session.run(RUNS[1])
    trace = edit(session, held, f"{PATTERN}[t=1,s=0]", 0.9).trace
    given, other, computed = (
        derive(trace, f"{name}[t=1,s={s}]")
        for name, s in ((PATTERN, 0), (PATTERN, 1), (f"{PATTERN}.computed", 0))
    )
    assert (given.value, given.operands, str(given.formula)) == (0.9, [], "P[t,s] = 0.9")
    assert (other.value, other.operands[0].name) == (
        held.trace.value(PATTERN)[0, 0, 1, 1],
        f"{PATTERN}.computed",
    )
    assert computed.value == held.trace.value(PATTERN)[0, 0, 1, 0] and "e^M" in str(computed.formula)
    assert find_computed(trace, PATTERN) == f"{PATTERN}.computed"
    assert find_computed(trace, f"d.{PATTERN}.computed") is None is find_computed(trace, "probs")
    assert replay(trace).exact == len(trace.tape.steps)


@pytest.mark.parametrize(
    "request_", RUNS, ids=lambda run: run.update or ("gradients" if run.backward else "run")
)
def test_an_edit_back_to_the_first_number_gives_the_first_numbers(
    session: Session, request_: RunRequest
) -> None:
    held = session.run(request_)
    for at, given in ((f"{PATTERN}[t=1,s=0]", 0.25), ("embed.weight[v=1,c=0]", 0.25), ("mask[t=1,s=0]", 0)):
        own = derive(held.trace, at, depth=0).value
        moved = edit(
            session,
            edit(session, held, "loss" if "loss" in held.trace.tape else "logits[0,0]", 2.0),
            at,
            given,
        )
        back = edit(session, moved, at, own)
        assert moved.request and back.request and len(back.request.edits) == len(moved.request.edits) - 1
        back = edit(session, edit(session, held, at, given), at, own)
        assert list(back.trace.tape.values) == list(held.trace.tape.values)
        for name, value in held.trace.tape.values.items():
            assert has_same_bits(back.trace.tape.values[name], value), name


@pytest.mark.parametrize(
    "request_", RUNS, ids=lambda run: run.update or ("gradients" if run.backward else "run")
)
def test_a_dropped_trace_is_computed_again_with_its_edits(request_: RunRequest) -> None:
    whole, small = Session.open("abcd"), Session.open("abcd")
    small._most_traces = 1
    for session in (whole, small):
        held = session.run(request_)
        for at, value in ((f"{PATTERN}[t=1,s=0]", 0.9), ("unembed.weight[v=2,c=1]", -1.5)):
            held = edit(session, held, at, value)
    assert list(small.traces) == ["t3"]
    for id in ("t2", "t1", "t3"):
        assert equals(small.get_trace(id).trace, whole.get_trace(id).trace)
    assert not isinstance(small.get_trace("t1").trace.tape, ReusingTape)


def test_an_edited_trace_equals_a_run_of_everything(session: Session) -> None:
    held = session.run(RUNS[2])
    cells = [
        ("blocks.0.attn.q@1", (0, 0, 1, 1), 0.5),
        ("embed.weight", (1, 0), 2.0),
        ("d.logits", (0, 1, 2), -1.0),
    ]
    for name, index, value in cells:
        held = session.edit(held, CellEdit(name, index, value))
    edits = group_edits(held.trace, [CellEdit(*cell) for cell in cells])
    assert session.model is not None
    run = {"target": "C", "update": "sgd", "lr": 0.5, "steps": 2}
    assert equals(session.model.trace("A B", make_tape=partial(Tape, edits=edits), **run), held.trace)
    assert held.steps_run < len(held.trace.tape.steps)


def test_an_edited_trace_does_not_keep_the_one_before_it(session: Session) -> None:
    tape = edit(session, session.run(RUNS[0]), "probs[t=1,v=0]", 0.5).trace.tape
    assert isinstance(tape, ReusingTape) and not tape.previous.values


def test_an_edit_of_a_gradient_and_of_an_update_is_followed(session: Session) -> None:
    held = session.run(RUNS[2])
    held = edit(session, held, "d.logits[t=1,v=2]", 5.0)
    held = edit(session, held, "embed.weight@1[v=0,c=0]", 7.0)
    held = edit(session, held, "probs@1[t=1,v=0]", 0.5)
    tape = held.trace.tape
    assert tape["d.logits.backpropagated"][0, 1, 2] != tape["d.logits"][0, 1, 2] == 5
    assert tape["embedded@1"][0, 0, 0] == tape["embed.weight@1"][0, 0] == 7
    assert find_computed(held.trace, "probs@1") == "probs.computed@1"
    assert find_computed(held.trace, "d.logits") == "d.logits.backpropagated"
    assert find_computed(held.trace, "embed.weight@1") == "embed.weight@1.computed"
    assert get_edited(held.trace, "probs.computed@1") == "probs@1"
    assert [entry["at"] for entry in held.trace.run["edits"]] == [
        "d.logits[t=1,v=2]", "embed.weight@1[v=0,c=0]", "probs@1[t=1,v=0]"
    ]  # fmt: skip


def test_what_selects_and_what_a_formula_gives_cannot_be_edited(session: Session) -> None:
    held = edit(session, session.run(RUNS[1]), f"{PATTERN}[t=1,s=0]", 0.9)
    for name in ("ids", "targets", f"{PATTERN}.computed"):
        assert find_obstacle(held.trace, name)
        with pytest.raises(UsageError, match="instead"):
            read_edit(held.trace, f"{name}[0,0]" if name != f"{PATTERN}.computed" else f"{name}[1,0]", 1.0)
    for name in ("embed.weight", "mask", "probs", "loss", "d.logits", f"d.{PATTERN}"):
        assert find_obstacle(held.trace, name) is None


@pytest.mark.parametrize("at", ["probs", "probs[t=1]", "probs[t=9,v=0]", "prob[t=1,v=0]", "", "x" * 4000])
def test_a_wrong_cell_gets_the_message_of_explain(session: Session, at: str) -> None:
    trace = session.run(RUNS[0]).trace
    with pytest.raises(AddressError) as wanted:
        derive(trace, at)
    with pytest.raises(AddressError) as got:
        read_edit(trace, at, 1.0)
    assert str(got.value) == str(wanted.value)


def test_the_last_number_given_for_a_cell_counts(session: Session) -> None:
    trace = session.run(RUNS[1]).trace
    edits = [CellEdit("probs", (0, 1, 0), 0.5), CellEdit("loss", (), 2.0), CellEdit("probs", (0, 1, 0), 0.25)]
    assert group_edits(trace, edits) == {"probs": {4: 0.25}, "loss": {0: 2.0}}


def test_edits_are_limited_and_a_finished_trace_has_none(session: Session) -> None:
    held = session.run(RUNS[0])
    full = RunRequest("A B", edits=tuple(CellEdit("probs", (0, i, 0), 0.5) for i in range(2, MOST_EDITS + 2)))
    with pytest.raises(UsageError, match="at most"):
        edit(session, HeldTrace("t9", held.trace, full), "probs[t=1,v=0]", 0.5)
    with pytest.raises(UsageError, match="open its model"):
        Session(trace=held.trace).edit(HeldTrace("t9", held.trace), CellEdit("probs", (0, 0, 0), 0.5))


def test_an_edited_trace_is_written_and_read_back_with_its_edits(session: Session, tmp_path: Path) -> None:
    held = edit(session, session.run(RUNS[1]), f"{PATTERN}[t=1,s=0]", 0.9)
    assert session.model is not None
    write_trace(session.model, held.trace, tmp_path / "t.json")
    again = Session.open(str(tmp_path / "t.json"))
    opened = again.get_trace(None)
    assert equals(opened.trace, held.trace)
    assert read_described_edits(opened.trace) == [{"at": f"{PATTERN}[t=1,s=0]", "value": 0.9}]
    assert again.ask("session")["traces"][0]["edits"] == read_described_edits(opened.trace)
    for name in (PATTERN, f"{PATTERN}.computed"):
        at = f"{name}[t=1,s=0]"
        assert str(derive(opened.trace, at)) == str(derive(held.trace, at))


def test_an_edited_weight_is_stored_with_the_trace_and_not_referred_to(tmp_path: Path) -> None:
    held = {name: value.astype(np.float32) for name, value in weights(CONFIG).items()}
    source = Provenance(tmp_path, "pellucid", "pellucid", dict.fromkeys(held, "F32"), 0)
    model_folder.write(tmp_path / "model", Pretrained("tiny", CONFIG, held, None, source))
    session = Session.open(str(tmp_path / "model"))
    trace = edit(session, session.run(RunRequest(IDS)), "embed.weight[v=1,c=2]", 0.1).trace
    assert session.model is not None
    write_trace(session.model, trace, tmp_path / "t.json")
    assert has_same_bits(read_trace(tmp_path / "t.json").tape["embed.weight"], trace.tape["embed.weight"])


NO_EDITS: list[Any] = [
    None, 5, "x", [5], [{}], [{"at": 1, "value": 2.0}], [{"at": "x", "value": "y"}], {"at": "x"},
    [{"at": "x", "value": 10**400}],
]  # fmt: skip


@pytest.mark.parametrize("edits", NO_EDITS)
def test_a_damaged_record_of_edits_lists_none(session: Session, edits: Any) -> None:
    held = session.run(RUNS[0])
    assert read_described_edits(Trace(held.trace.tape, {"edits": edits})) == []


def test_what_exists_only_beside_an_edit_cannot_be_edited(session: Session) -> None:
    held = edit(session, session.run(RUNS[1]), f"{PATTERN}[t=1,s=0]", 0.9)
    with pytest.raises(UsageError, match=f"edit d.{PATTERN} instead"):
        edit(session, held, f"d.{PATTERN}.computed[t=1,s=1]", 2.0)
    held = edit(session, held, f"d.{PATTERN}[t=1,s=1]", 2.0)
    session.traces.clear()
    assert equals(session.get_trace(held.id).trace, held.trace)

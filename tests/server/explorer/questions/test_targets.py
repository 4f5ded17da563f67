"""`targets` lists the numbers of the trace for each target token, before and after the updates."""

import pytest

from pellucid.server.explorer.held_trace import RunRequest
from pellucid.server.explorer.session import Session


@pytest.fixture(scope="module")
def session() -> Session:
    session = Session.open("abcd")
    session.run(RunRequest("A B", target="C D", update="sgd", lr=1.0, steps=2))
    session.run(RunRequest("A B"))
    return session


def test_each_target_has_its_probability_before_and_after_the_updates(session: Session) -> None:
    found, tape = session.ask("targets", trace="t1"), session.traces["t1"].trace.tape
    assert [target["label"] for target in found["targets"]] == ["C", "D"]
    for target in found["targets"]:
        t, id = target["t"], target["id"]
        cells = [(f"probs{suffix}[t={t},v={id}]", tape[f"probs{suffix}"][0, t, id]) for suffix in ("", "@2")]
        assert [(number["at"], number["value"]) for number in target["probs"]] == cells
        assert target["nll"][0]["value"] == tape["nll"][0, t]


def test_the_loss_is_that_of_the_first_and_the_last_pass(session: Session) -> None:
    found, tape = session.ask("targets", trace="t1"), session.traces["t1"].trace.tape
    assert [loss["value"] for loss in found["losses"]] == [tape["loss"], tape["loss@2"]]
    assert [loss["at"] for loss in found["losses"]] == ["loss", "loss@2"]


def test_a_count_bounds_the_list_and_the_whole_count_is_given(session: Session) -> None:
    found = session.ask("targets", trace="t1", count=1)
    assert (len(found["targets"]), found["count"]) == (1, 2)


def test_a_trace_without_a_target_has_no_loss(session: Session) -> None:
    found = session.ask("targets", trace="t2")
    assert found["losses"] == found["targets"] == []

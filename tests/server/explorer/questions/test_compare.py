"""Two traces: the first value that differs, and the largest difference of each."""

import pytest

from pellucid.base.errors import UsageError
from pellucid.server.explorer.held_trace import RunRequest
from pellucid.server.explorer.session import Session


@pytest.fixture
def session() -> Session:
    session = Session.open("abcd")
    session.run(RunRequest("A B"))
    session.ask("edit", at="blocks.0.attn.scores[t=1,s=0]", value=2.0)
    session.run(RunRequest("A B C"))
    return session


def test_the_first_difference_is_the_edit_itself(session: Session) -> None:
    answer = session.ask("compare", a="t1", b="t2")
    assert answer["first"] == {
        "name": "blocks.0.attn.scores", "most": 2.0, "at": "blocks.0.attn.scores[t=1,s=0]", "a": 0.0, "b": 2.0
    }  # fmt: skip
    names = [entry["name"] for entry in answer["differences"]]
    assert names[0] == "blocks.0.attn.scores" and names[-1] == "probs" and answer["count"] == len(names)
    assert answer["only_b"] == {"names": ["blocks.0.attn.scores.computed"], "count": 1}
    assert answer["same"] + answer["count"] == len(session.get_trace("t1").trace.tape.values)
    for entry in answer["differences"]:
        for id in ("a", "b"):
            assert (
                session.ask("value", trace={"a": "t1", "b": "t2"}[id], at=entry["at"])["numbers"][0][0]
                == entry[id]
            )


def test_a_trace_does_not_differ_from_itself(session: Session) -> None:
    answer = session.ask("compare", a="t1", b="t1")
    assert (answer["first"], answer["differences"], answer["count"]) == (None, [], 0)


def test_values_of_another_shape_are_named(session: Session) -> None:
    answer = session.ask("compare", a="t1", b="t3")
    assert "probs" in answer["other_shape"]["names"] and "embed.weight" not in answer["other_shape"]["names"]
    assert answer["count"] == 0 and answer["first"] is None


def test_an_unknown_trace_is_refused(session: Session) -> None:
    with pytest.raises(UsageError, match="t9"):
        session.ask("compare", a="t1", b="t9")

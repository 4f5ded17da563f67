"""`gradients` lists the parameters by the norm of their gradients."""

import numpy as np
import pytest

from pellucid.base.errors import UsageError
from pellucid.server.explorer.held_trace import RunRequest
from pellucid.server.explorer.session import Session


@pytest.fixture(scope="module")
def session() -> Session:
    session = Session.open("abcd")
    session.run(RunRequest("A B", target="C", backward=True))
    session.run(RunRequest("A B"))
    return session


def test_norms_are_those_of_the_gradients_largest_first(session: Session) -> None:
    found, tape = session.ask("gradients", trace="t1"), session.traces["t1"].trace.tape
    norms = {name: np.linalg.norm(tape[f"d.{name}"]) for name, role in tape.roles.items() if role == "param"}
    assert found["count"] == len(norms) == 5
    assert [entry["norm"] for entry in found["gradients"]] == pytest.approx(
        sorted(norms.values(), reverse=True)
    )
    for entry in found["gradients"]:
        assert entry["norm"] == pytest.approx(norms[entry["name"]])
        assert abs(entry["value"]) == np.abs(tape[f"d.{entry['name']}"]).max()
        assert entry["at"].startswith(f"d.{entry['name']}[")


def test_a_count_bounds_the_list(session: Session) -> None:
    assert len(session.ask("gradients", trace="t1", count=2)["gradients"]) == 2


def test_a_trace_without_gradients_is_refused(session: Session) -> None:
    with pytest.raises(UsageError):
        session.ask("gradients", trace="t2")

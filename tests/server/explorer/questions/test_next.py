"""`next` lists the likeliest tokens after a position, with the numbers of the trace."""

import numpy as np
import pytest

from pellucid.base.errors import UsageError
from pellucid.explanation.address import parse
from pellucid.explanation.trace import Trace
from pellucid.reference.tape import Tape
from pellucid.server.explorer.held_trace import RunRequest
from pellucid.server.explorer.session import Session


@pytest.fixture(scope="module")
def session() -> Session:
    session = Session.open("abcd")
    session.run(RunRequest("A B"))
    session.run(RunRequest(["A B", "C"]))  # type: ignore[arg-type]
    return session


def test_each_token_has_the_probability_at_its_address(session: Session) -> None:
    found, trace = session.ask("next", trace="t1", t=0), session.traces["t1"].trace
    assert [token["rank"] for token in found["tokens"]] == [0, 1, 2, 3]
    for token in found["tokens"]:
        part = parse(trace, token["at"])
        assert trace.value("probs")[part.cell] == token["p"] and part.cell == (0, 0, token["id"])
        assert token["surprisal"] == -np.log(token["p"])
    p = trace.value("probs")[0, 0]
    assert found["entropy"] == pytest.approx(-(p * np.log(p)).sum()) and found["vocab"] == 4


def test_the_default_is_the_last_token_of_a_prompt_not_its_padding(session: Session) -> None:
    assert [session.ask("next", trace="t2", b=b)["t"] for b in (0, 1)] == [1, 0]
    found = session.ask("next", trace="t2", b=1)
    assert found["label"] == "C"
    for token in found["tokens"]:
        cell = parse(session.traces["t2"].trace, token["at"]).cell
        assert cell == (1, 0, token["id"])
        assert session.traces["t2"].trace.value("probs")[cell] == token["p"]


@pytest.mark.parametrize("given", [{"t": 2}, {"b": 1}, {"t": -1}, {"count": 0}, {"count": 65}, {"t": "x"}])
def test_a_place_or_count_out_of_range_is_an_error(session: Session, given: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        session.ask("next", trace="t1", **given)


def test_a_trace_without_probabilities_gets_one_message() -> None:
    tape = Tape()
    tape.constant("x", 1.0)
    with pytest.raises(UsageError, match="probabilities"):
        Session(trace=Trace(tape)).ask("next")


def test_impossible_tokens_have_infinite_surprisal_and_do_not_spoil_the_entropy() -> None:
    tape = Tape()
    tape.constant("probs", [[[0.5, 0.5, 0.0]]])
    found = Session(trace=Trace(tape)).ask("next")
    assert found["entropy"] == pytest.approx(np.log(2)) and found["tokens"][2]["surprisal"] == "inf"

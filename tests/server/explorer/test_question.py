"""Questions: the signature of an answer bounds its parameters, and nothing but a message comes out."""

import contextlib
import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pellucid.base.errors import PellucidError, UsageError
from pellucid.server.explorer import find_question, list_questions
from pellucid.server.explorer.held_trace import HeldTrace, RunRequest
from pellucid.server.explorer.question import ask, get_method, read_signature, to_json
from pellucid.server.explorer.session import Session

QUESTIONS = list_questions()
HOSTILE = [
    None, True, False, 0, 1, -1, 2**31, 2**64, 10**5000, 1.5, -0.0, math.nan, math.inf, "", "1", "-1", "t1",
    "t9", "1_0", "１", "9" * 5000, "nan", "true", "\ud800", "\0", "\u202e", "a" * 70_000, "1,2", "[1]", [],
    [1], ["a"], [[]], [2**40], {}, {"a": 1}, b"x", object(), "probs", "probs[t=1,v=2]", "probs[t=99]",
    "probs[", "d.probs", "blocks", "blocks.0.attn.scores[h=0,t=1,s=0]", "embed.weight[v=0,c=1]", "A B",
    "A", "B C",
]  # fmt: skip


@pytest.fixture(scope="module")
def session() -> Session:
    session = Session.open("abcd")
    session.run(RunRequest("A B"))
    session.run(RunRequest("A B", target="C", backward=True))
    session.run(RunRequest("A B", target="C", update="adamw"))
    return session


def name_parameters(name: str) -> list[str]:
    return [parameter.name for parameter in read_signature(find_question(name).answer)]


values = st.one_of(
    st.sampled_from(HOSTILE),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.integers(0, 5), max_size=4),
)


def ask_and_check(session: Session, name: str, parameters: Any, is_text: bool) -> None:
    with contextlib.suppress(PellucidError):
        json.dumps(ask(session, name, parameters, is_text), allow_nan=False)


names = st.sampled_from(
    ["probs", "embed.weight", "d.embed.weight", "loss", "ids", "blocks.0", "probs@1", "mask"]
)
traces = st.sampled_from(["t1", "t2", "t3", "t4", "t20"])
addresses = st.sampled_from(
    [
        "probs[t=1,v=2]", "probs[t=0]", "probs", "embed.weight[v=0,c=1]", "loss", "ids[t=1]", "d.loss",
        "blocks.0.attn.scores[t=1,s=0]", "d.embed.weight[v=1,c=0]", "embed.weight@1[v=1,c=0]",
        "blocks.0.attn.masked[t=0,s=1]", "mask[t=0,s=1]", "probs[v=B,t=A]",
        "blocks.0.attn.z.computed[t=0,d=0]",
    ]
)  # fmt: skip
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "trace": traces, "a": traces, "b": st.one_of(traces, st.integers(0, 1)), "name": names, "of": names,
    "under": names, "at": addresses, "value": st.floats(), "h": st.floats(1e-9, 1.0),
    "prompt": st.text("ABCD ", max_size=9), "text": st.text("ABCD ", max_size=9),
    "target": st.text("ABCD ", max_size=5), "ids": st.lists(st.integers(0, 3), max_size=5),
    "update": st.sampled_from(["sgd", "adamw", "muon"]), "lr": st.floats(-1e6, 1e6), "flatten": st.booleans(),
    "backward": st.booleans(), "run": st.text(max_size=5),
}  # fmt: skip
"""Values with which a question gets far: only a parameter beside them is wrong."""


def fuzz(session: Session, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(QUESTIONS))
    known = name_parameters(name)
    if data.draw(st.booleans()):
        strange = st.dictionaries(st.sampled_from([*known, "x", ""]), values, max_size=5)
        ask_and_check(session, name, data.draw(strange), data.draw(st.booleans()))
        return
    given = {
        key: data.draw(LIKELY.get(key, st.integers(0, 5))) for key in known if data.draw(st.integers(0, 4))
    }
    ask_and_check(session, name, given, False)


@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_only_messages_come_out_of_any_parameters(session: Session, data: st.DataObject) -> None:
    fuzz(session, data)


@pytest.mark.torture
@given(data=st.data())
@settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
def test_only_messages_come_out_of_ten_thousand_parameters(session: Session, data: st.DataObject) -> None:
    fuzz(session, data)


@pytest.mark.parametrize("name", QUESTIONS)
def test_each_hostile_value_of_each_parameter_is_refused_or_answered(session: Session, name: str) -> None:
    for key in name_parameters(name):
        for value in HOSTILE:
            for is_text in (False, True):
                ask_and_check(session, name, {key: value}, is_text)


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_parameter_has_a_type_and_a_bound(name: str) -> None:
    for parameter in read_signature(find_question(name).answer):
        assert parameter.type in (str, int, float, bool, HeldTrace, list[int]), parameter
        if parameter.type in (int, str, list[int]):
            assert parameter.most is not None, parameter
        if parameter.type is int and not parameter.is_required and parameter.default is not None:
            assert parameter.read(parameter.default) == parameter.default, parameter


def test_a_question_is_asked_with_get_unless_it_computes() -> None:
    assert get_method("session") == "GET"
    assert get_method("run") == "POST"
    assert {get_method(name) for name in QUESTIONS} == {"GET", "POST"}


@pytest.mark.parametrize(
    "name", ["", "nxt", "../session", "next.py", "__init__", "a" * 1000, "\ud800", 5, None]
)
def test_an_unknown_question_is_refused(session: Session, name: Any) -> None:
    with pytest.raises(PellucidError):
        ask(session, name)


@pytest.mark.parametrize(
    "parameters",
    [
        {"prompt": "9" * 60_000},
        {"prompt": "A", "target": "9" * 70_000},
        {"prompt": "A", "x" * 70_000: 1},
        {"ids": [9] * 60_000},
    ],
    ids=["word", "text", "name", "ids"],
)
def test_a_message_stays_short_whatever_is_given(session: Session, parameters: dict[str, Any]) -> None:
    with pytest.raises(PellucidError) as refused:
        ask(session, "run", parameters)
    assert len(str(refused.value)) < 1000


def test_an_unknown_parameter_is_named_with_those_that_there_are(session: Session) -> None:
    with pytest.raises(UsageError, match="count"):
        ask(session, "next", {"cuont": 3})
    with pytest.raises(UsageError, match="no keys"):
        ask(session, "session", {"x": 3})


def test_a_missing_parameter_is_named(session: Session) -> None:
    with pytest.raises(UsageError, match="at"):
        ask(session, "value", {})


def test_a_question_about_no_trace_is_about_the_newest(session: Session) -> None:
    newest = session.newest
    assert newest is not None
    assert ask(session, "names") == ask(session, "names", {"trace": newest.id})


@pytest.mark.parametrize("text", ["2", "+2", "02"])
def test_a_text_is_read_as_the_number_that_it_writes(session: Session, text: str) -> None:
    assert len(ask(session, "next", {"count": text}, is_text=True)["tokens"]) == 2


@pytest.mark.parametrize("text", ["2.0", "2 ", " 2", "2_0", "0x2", "２", "2e0", "", "nan", "٢"])
def test_a_text_that_is_not_a_whole_number_is_refused(session: Session, text: str) -> None:
    with pytest.raises(UsageError, match="count"):
        ask(session, "next", {"count": text}, is_text=True)


def test_a_number_is_not_a_text_nor_true_a_number(session: Session) -> None:
    for value in ("2", True, 2.0, [2]):
        with pytest.raises(UsageError, match="count"):
            ask(session, "next", {"count": value})


def test_numbers_that_json_lacks_are_texts() -> None:
    assert to_json({"a": (math.inf, -math.inf, math.nan, 0.1)}) == {"a": ["inf", "-inf", "nan", 0.1]}

"""An edit answers with what changed, how much ran, and one true sentence about the prediction."""

import json
import math
import os
import time
from functools import partial
from typing import Any

import numpy as np
import pytest

from pellucid.base.errors import AddressError, UsageError
from pellucid.explanation.reuse import has_same_bits
from pellucid.reference.tape import Tape
from pellucid.server.explorer.editing import group_edits
from pellucid.server.explorer.held_trace import RunRequest
from pellucid.server.explorer.question import get_method
from pellucid.server.explorer.questions.edit import describe_move
from pellucid.server.explorer.session import Session

PATTERN = "blocks.0.attn.pattern[t=1,s=0]"


@pytest.fixture
def session() -> Session:
    session = Session.open("abcd")
    session.run(RunRequest("A B", target="C", backward=True))
    return session


def test_an_edit_makes_a_child_and_leaves_its_parent_alone(session: Session) -> None:
    before = session.get_trace("t1").trace.value("probs").copy()
    answer = session.ask("edit", at=PATTERN, value=0.9)
    assert (answer["trace"], answer["parent"], answer["at"], answer["after"]) == ("t2", "t1", PATTERN, 0.9)
    assert answer["before"] == session.get_trace("t1").trace.value("blocks.0.attn.pattern")[0, 0, 1, 0]
    assert np.array_equal(session.get_trace("t1").trace.value("probs"), before)
    assert [trace["parent"] for trace in session.ask("session")["traces"]] == [None, "t1"]
    other = session.ask("edit", trace="t1", at="loss", value=0)
    assert (other["trace"], other["parent"]) == ("t3", "t1")


def test_what_changed_is_listed_with_its_largest_change(session: Session) -> None:
    answer = session.ask("edit", at=PATTERN, value=0.9)
    old, new = (session.get_trace(id).trace for id in ("t1", "t2"))
    wanted = {
        name: float(np.abs(value - old.value(name)).max())
        for name, value in new.tape.values.items()
        if name in old.tape.values and not np.array_equal(value, old.value(name))
    }
    assert {entry["name"]: entry["most"] for entry in answer["changed"]} == wanted
    assert answer["changed_count"] == len(wanted) and answer["changed"][0]["at"] == PATTERN
    assert len(wanted) <= answer["steps_run"] < answer["steps"] == len(new.tape.steps)
    assert answer["next"]["before"] == session.ask("next", trace="t1")["tokens"]
    assert answer["next"]["after"] == session.ask("next", trace="t2")["tokens"]


@pytest.mark.parametrize(
    ("at", "value", "sentence"),
    [
        (PATTERN, 0.9, "The likeliest next token changes from B to A: B falls from 32.4 % to 23.8 %, "
         "and A rises from 17.6 % to 26.2 %."),
        (PATTERN, 0.3, "B falls from 32.4 % to 31.2 % and stays the likeliest next token."),
        ("logits[t=1,v=0]", -3, "B rises from 32.4 % to 39.0 % and stays the likeliest next token."),
        ("probs[t=1,v=0]", 0.2, "B keeps 32.4 % and stays the likeliest next token."),
        ("probs[t=0,v=0]", 0.5, "No probability of the next token has changed."),
        ("loss", 0, "No probability of the next token has changed."),
    ],
)  # fmt: skip
def test_the_sentence(session: Session, at: str, value: float, sentence: str) -> None:
    assert session.ask("edit", at=at, value=value)["sentence"] == sentence


def test_what_an_edit_does_only_after_the_update_is_said() -> None:
    session = Session.open("abcd")
    session.run(RunRequest("A B", target="C", backward=True, update="sgd", lr=1.0))
    answer = session.ask("edit", at="d.logits[t=1,v=2]", value=9)
    old, new = (session.get_trace(id).trace for id in ("t1", "t2"))
    assert np.array_equal(old.value("probs"), new.value("probs"))
    was, now = (trace.value("probs@1")[0, 1, 2] for trace in (old, new))
    move = f"{'rises' if now > was else 'falls'} from {100 * was:.1f} % to {100 * now:.1f} %"
    assert f"before the update; after it: C {move}" in answer["sentence"]


def test_a_mask_is_0_or_1(session: Session) -> None:
    with pytest.raises(UsageError):
        session.ask("edit", at="mask[t=1,s=0]", value=0.5)
    session.ask("edit", at="mask[t=1,s=0]", value=0)
    assert session.get_trace(None).trace.value("blocks.0.attn.pattern")[0, 0, 1, 0] == 0


def test_a_prediction_that_overflows_says_so_and_can_be_undone(session: Session) -> None:
    answer = session.ask("edit", at="embed.weight[v=1,c=0]", value=1e200)
    assert answer["sentence"] == "The probabilities of the next token are no longer finite numbers."
    assert json.loads(json.dumps(answer, allow_nan=False))["next"]["after"][0]["p"] == "nan"
    undone = session.ask("edit", trace="t2", at="embed.weight[v=1,c=0]", value=0)
    assert undone["next"]["after"] == session.ask("next", trace="t1")["tokens"]
    assert undone["sentence"] == "B is the likeliest next token, with 32.4 %."


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        (0.752, 0.61, "falls from 75.2 % to 61.0 %"),
        (0.61, 0.752, "rises from 61.0 % to 75.2 %"),
        (0.5, 0.5 + 1e-9, "rises from 50.0000000 % to 50.0000001 %"),
        (0.0, 1e-300, "rises from 0 % to 1e-298 %"),
        (1.0, 1.0, "keeps 100.0 %"),
        (
            0.17881847250837668,
            math.nextafter(0.17881847250837668, 1),
            "keeps 17.9 %",
        ),  # 100 times both is one float
    ],
)
def test_a_move_shows_as_many_decimals_as_differ(old: float, new: float, wanted: str) -> None:
    assert describe_move(old, new) == wanted


@pytest.mark.parametrize("value", ["1", None, True, float("nan"), float("inf"), 10**400, [1.0], {}])
def test_the_number_must_be_finite(session: Session, value: Any) -> None:
    with pytest.raises(UsageError, match="finite"):
        session.ask("edit", at=PATTERN, value=value)


def test_ids_and_wrong_cells_are_refused_and_nothing_is_made(session: Session) -> None:
    with pytest.raises(UsageError, match="whole numbers"):
        session.ask("edit", at="ids[t=0]", value=1)
    with pytest.raises(AddressError, match="t=7"):
        session.ask("edit", at="probs[t=7,v=0]", value=1)
    with pytest.raises(AddressError, match="more than one number"):
        session.ask("edit", at="probs", value=1)
    assert len(session.summaries) == 1 and get_method("edit") == "POST"


def test_integers_are_numbers_too(session: Session) -> None:
    assert session.ask("edit", at=PATTERN, value=1)["after"] == 1.0


@pytest.mark.skipif("PELLUCID_SMOLLM2" not in os.environ, reason="PELLUCID_SMOLLM2 names no file")
def test_an_edit_of_a_real_model_is_fast_and_equals_the_full_run() -> None:
    session = Session.open(os.environ["PELLUCID_SMOLLM2"])
    session.run(RunRequest("The cat sat on"))
    for at, most in (
        ("blocks.29.attn.scores[h=3,t=3,s=1]", 30),
        ("blocks.15.mlp.up[t=3,f=7]", 400),
        ("embedded[t=1,c=3]", 700),
    ):
        start = time.process_time()
        answer = session.ask("edit", trace="t1", at=at, value=3.0)
        assert time.process_time() - start < 0.5 and answer["steps_run"] < most
        edits = group_edits(session.get_trace("t1").trace, session.summaries[answer["trace"]].request.edits)
        whole = session.model.trace("The cat sat on", make_tape=partial(Tape, edits=edits)).tape
        edited = session.get_trace(answer["trace"]).trace.tape
        assert all(has_same_bits(edited.values[name], value) for name, value in whole.values.items())

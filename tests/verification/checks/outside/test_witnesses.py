"""Who agrees with whom decides between a bug of ours, noise, and "cannot tell"."""

import gc
import weakref

import pytest

import pellucid
from pellucid.verification.checks.check import Subject
from pellucid.verification.checks.outside.witnesses import Departure, Witness, join, judge_departure, remember

AT = Departure("angles", "cos 1 here and 2 there")
YES, NO, SILENT = Witness("b", True), Witness("b", False), Witness("b", None, "is not installed")


@pytest.mark.parametrize(
    ("is_authority", "others", "verdict"),
    [
        (True, [], "BUG"),
        (True, [SILENT], "BUG"),
        (True, [NO], "BUG"),
        (True, [YES], "noise"),
        (False, [NO], "BUG"),
        (False, [YES], "noise"),
        (False, [SILENT], "cannot tell"),
        (False, [], "cannot tell"),
        (False, [YES, NO], "BUG"),
    ],
)
def test_a_departure_is_a_bug_where_the_authority_or_two_others_say_so(
    is_authority: bool, others: list[Witness], verdict: str
) -> None:
    found = judge_departure("a", AT, is_authority, others)
    assert found.verdict == verdict
    assert found.at == ("" if verdict == "noise" else "angles")


def test_the_parties_are_named() -> None:
    assert judge_departure("a", AT, False, [YES]).measured == (
        "a departs at angles; b and the specification agree with ours"
    )
    assert "b is not installed" in judge_departure("a", AT, False, [SILENT]).measured
    assert "b departs as well" in judge_departure("a", AT, False, [NO]).message


def test_names_are_joined_as_in_a_sentence() -> None:
    assert join(["a"]) == "a" and join(["a", "b", "c"]) == "a, b and c"


def test_each_subject_is_asked_about_once_and_then_forgotten_with_it() -> None:
    asked = []
    ask = remember(lambda subject: asked.append(subject.text) or len(asked))
    subject = Subject(pellucid.load("abcd"), "one")
    assert (ask(subject), ask(subject), asked) == (1, 1, ["one"])
    gone = weakref.ref(subject)
    del subject
    gc.collect()
    assert gone() is None

"""Tests of the number of targets that a model predicts after each update."""

import pellucid
from pellucid.learning.lessons.program import record_right

PROMPTS, TARGETS = ["A B", "B A"], ["C", "A"]


def test_a_target_is_right_where_it_is_the_likeliest_token() -> None:
    trace = record_right(pellucid.trace("abcd", PROMPTS, target=TARGETS, update="sgd", lr=1, steps=3))
    for k in range(4):
        likeliest = trace.tape[f"probs@{k}"][:, 1].argmax(axis=-1)
        assert trace.tape[f"right@{k}"] == (likeliest == [2, 0]).sum()
    assert "right@4" not in trace.tape


def test_updates_is_the_first_time_that_all_are_right() -> None:
    trace = record_right(pellucid.trace("abcd", "A B", target="A", update="sgd", lr=1, steps=3))
    first = int(trace.tape["updates"])
    assert first > 0
    assert [int(trace.tape[f"right@{k}"]) for k in range(first + 1)] == [0] * first + [1]


def test_updates_is_minus_1_where_all_are_never_right() -> None:
    trace = record_right(pellucid.trace("abcd", "A B", target="A", update="sgd", lr=0, steps=2))
    assert trace.tape["updates"] == -1

"""What counts as equal."""

import numpy as np

from pellucid.model import load
from pellucid.verification.mismatch import explain_mismatch, find_first_mismatch, find_mismatch


def test_equal_is_relative_to_the_largest_entry() -> None:
    wanted = np.array([1.0, 1e-9])
    assert find_mismatch("x", wanted + np.array([0, 1e-13]), wanted, 1e-12) is None
    found = find_mismatch("x", wanted + np.array([0, 1e-11]), wanted, 1e-12)
    assert found is not None
    assert found.index == (1,)


def test_a_value_that_is_only_rounding_is_judged_against_its_kind() -> None:
    got, wanted = {"a": np.array([1.0]), "b": np.array([1e-14])}, {"a": np.array([1.0]), "b": np.array([0.0])}
    assert find_first_mismatch(got, wanted, 1e-10) is None
    assert find_mismatch("b", got["b"], wanted["b"], 1e-10) is not None


def test_infinities_must_sit_in_the_same_places() -> None:
    inf = np.array([0.0, -np.inf])
    assert find_mismatch("x", inf, inf, 1e-12) is None
    found = find_mismatch("x", np.array([0.0, -1e300]), inf, 1e-12)
    assert found is not None
    assert str(found) == "x[1]: got -1e+300, wanted -inf"
    assert find_mismatch("x", np.array([np.nan, 1.0]), np.array([np.nan, 1.0]), 0) is None


def test_shapes_and_missing_names_are_departures() -> None:
    assert "shape (1,), wanted (2,)" in str(find_mismatch("x", np.zeros(1), np.zeros(2), 1))
    assert "(missing)" in str(find_first_mismatch({}, {"x": np.zeros(1)}, 1))


def test_the_first_mismatch_is_the_first_in_order() -> None:
    wanted = {"a": np.ones(1), "b": np.ones(1)}
    found = find_first_mismatch({"a": np.zeros(1), "b": np.zeros(1)}, wanted, 1e-10)
    assert found is not None
    assert found.name == "a"


def test_a_departure_is_reported_with_the_arithmetic_of_its_cell() -> None:
    trace = load("abcd").trace("A B")
    wrong = trace.tape["blocks.0.attn.scores"].copy()
    wrong[0, 0, 1, 1] = 2.0
    found = find_mismatch("blocks.0.attn.scores", wrong, trace.tape["blocks.0.attn.scores"], 1e-10)
    assert found is not None
    assert explain_mismatch(found, trace) == (
        "blocks.0.attn.scores[t=1,s=1]: got 2.0, wanted 1.4142135623730951\n"
        "  S[t,s] = Σ_d Q[t,d] K[s,d] / √2\n"
        "  = (0 · 0 + 2 · 1) / √2"
    )


def test_a_departure_of_something_given_says_so() -> None:
    trace = load("abcd").trace("A B")
    moved = trace.tape["embed.weight"] + 1
    found = find_mismatch("embed.weight", moved, trace.tape["embed.weight"], 1e-10)
    assert found is not None
    assert explain_mismatch(found, trace).endswith("\n  embed.weight[v=0,c=0] is given")


def test_a_missing_value_is_reported_by_its_name_alone() -> None:
    found = find_first_mismatch({}, {"logits": np.zeros((1, 2))}, 1)
    assert found is not None
    assert explain_mismatch(found, load("abcd").trace("A B")) == str(found)

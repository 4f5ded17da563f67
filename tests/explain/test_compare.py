"""What counts as equal."""

import numpy as np

from pellucid.explain.compare import departure, first_departure


def test_equal_is_relative_to_the_largest_entry() -> None:
    wanted = np.array([1.0, 1e-9])
    assert departure("x", wanted + np.array([0, 1e-13]), wanted, 1e-12) is None
    found = departure("x", wanted + np.array([0, 1e-11]), wanted, 1e-12)
    assert found is not None
    assert found.index == (1,)


def test_a_value_that_is_only_rounding_is_judged_against_its_kind() -> None:
    got, wanted = {"a": np.array([1.0]), "b": np.array([1e-14])}, {"a": np.array([1.0]), "b": np.array([0.0])}
    assert first_departure(got, wanted, 1e-10) is None
    assert departure("b", got["b"], wanted["b"], 1e-10) is not None


def test_infinities_must_sit_in_the_same_places() -> None:
    inf = np.array([0.0, -np.inf])
    assert departure("x", inf, inf, 1e-12) is None
    found = departure("x", np.array([0.0, -1e300]), inf, 1e-12)
    assert found is not None
    assert str(found) == "x[1]: got -1e+300, wanted -inf"
    assert departure("x", np.array([np.nan, 1.0]), np.array([np.nan, 1.0]), 0) is None


def test_shapes_and_missing_names_are_departures() -> None:
    assert "shape (1,), wanted (2,)" in str(departure("x", np.zeros(1), np.zeros(2), 1))
    assert "(missing)" in str(first_departure({}, {"x": np.zeros(1)}, 1))


def test_the_first_departure_is_the_first_in_order() -> None:
    wanted = {"a": np.ones(1), "b": np.ones(1)}
    found = first_departure({"a": np.zeros(1), "b": np.zeros(1)}, wanted, 1e-10)
    assert found is not None
    assert found.name == "a"

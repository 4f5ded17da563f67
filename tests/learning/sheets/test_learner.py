"""A learner's numbers: printed, answered, or computed from those; and what follows where one is another."""

import pytest

from pellucid.learning.sheets.learner import Learner
from tests.learning.sheets.by_hand import SHEET, answer_only

LEARNER = Learner(answer_only(E0="2", P1="0.6"))
"""e^S₀ = 2 and P₁ = 0.6 are answered, the rest is open."""


def test_an_open_box_is_computed_from_the_answers_before_it() -> None:
    assert LEARNER.values["E0"] == 2
    assert LEARNER.values["T"] == 2 + SHEET.key["E1"]


def test_sources_are_found_through_open_boxes() -> None:
    opened, answers = LEARNER.find_sources(SHEET.by_key["Z"].rule)
    assert [box.key for box in opened] == ["E1", "T", "P0"] and answers == ["E0", "P1"]


def test_a_change_passes_through_open_boxes_and_stops_at_an_answer() -> None:
    before = dict(LEARNER.values)
    changed = LEARNER.propagate("E0", 3.0)
    assert set(changed) == {"E0", "T", "P0", "Z", "L"}  # and not P1, which is answered
    assert changed["T"] == 3 + SHEET.key["E1"]
    assert LEARNER.values == before


def test_slack_is_the_sum_of_the_changes_by_half_a_unit_of_each_answer() -> None:
    """Z = P₀ · 2 − P₁ from 0.3 and 0.60: 0.05 · 2 + 0.005."""
    learner = Learner(answer_only(P0="0.3", P1="0.60", N="3"))
    assert learner.compute_slack(SHEET.by_key["Z"].rule, ["P0", "P1", "N"]) == pytest.approx(0.105)

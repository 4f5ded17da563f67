"""Warm-up, stable, decay against transformers' get_wsd_schedule, and by hand."""

import pytest
from transformers.optimization import get_wsd_schedule

from pellucid.parts.schedules.warmup_stable_decay import WarmupStableDecay
from tests.parts.schedules.theirs import factors


def test_three_phases_by_hand() -> None:
    """Ten steps: two to warm up, four whole, the last four down to nothing."""
    part = WarmupStableDecay(warmup=2, decay=0.4)
    assert [part.factor(step, 10) for step in range(12)] == [0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0, 0]


@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_after_the_warm_up_it_is_transformers_with_a_straight_decay(floor: float) -> None:
    theirs = factors(
        lambda optimizer: get_wsd_schedule(
            optimizer, 5, 12, num_training_steps=60, decay_type="linear", min_lr_ratio=floor
        ),
        70,
    )
    part = WarmupStableDecay(warmup=5, decay=0.2, floor=floor)
    assert [part.factor(step, 60) for step in range(5, 70)] == pytest.approx(theirs[5:], abs=1e-15)


def test_until_the_decay_begins_the_length_does_not_matter() -> None:
    part = WarmupStableDecay(warmup=3)
    assert [part.factor(t, 100) for t in range(80)] == [part.factor(t, 10**6) for t in range(80)]


def test_a_warm_up_longer_than_the_stable_phase_is_finished_first() -> None:
    part = WarmupStableDecay(warmup=6, decay=0.9)
    assert [part.factor(step, 10) for step in range(5, 10)] == [1, 1, 0.75, 0.5, 0.25]


def test_a_decay_over_no_share_of_the_run_never_comes() -> None:
    assert [WarmupStableDecay(decay=0.0).factor(step, 4) for step in range(6)] == [1] * 6

"""The straight line against transformers' schedule, and by hand."""

import pytest
from transformers.optimization import get_linear_schedule_with_warmup

from pellucid.parts.schedules.linear import LinearDecay
from tests.parts.schedules.theirs import factors


def test_a_line_by_hand() -> None:
    part = LinearDecay(warmup=2)
    assert [part.factor(step, 6) for step in range(8)] == [0.5, 1, 1, 0.75, 0.5, 0.25, 0, 0]
    assert LinearDecay(floor=0.2).factor(5, 10) == pytest.approx(0.6)
    assert LinearDecay(floor=0.2).factor(50, 10) == pytest.approx(0.2)


def test_after_the_warm_up_it_is_transformers() -> None:
    theirs = factors(lambda optimizer: get_linear_schedule_with_warmup(optimizer, 4, 25), 30)
    ours = [LinearDecay(warmup=4).factor(step, 25) for step in range(30)]
    assert ours[4:] == pytest.approx(theirs[4:], abs=1e-15)
    assert ours[:4] == pytest.approx(theirs[1:5], rel=1e-15)

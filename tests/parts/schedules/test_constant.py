"""The constant rate against transformers' schedule of that name, and by hand."""

import pytest
from transformers.optimization import get_constant_schedule_with_warmup

from pellucid.parts.schedules.constant import Constant
from tests.parts.schedules.theirs import factors


def test_a_constant_rate_by_hand() -> None:
    part = Constant(warmup=4)
    assert [part.factor(step, 8) for step in (0, 1, 2, 3, 4, 7, 8, 1000)] == [0.25, 0.5, 0.75, 1, 1, 1, 1, 1]
    assert Constant().factor(0, 8) == 1


def test_it_is_transformers_one_step_earlier_while_warming_up() -> None:
    """Theirs makes the first update with a rate of 0."""
    theirs = factors(lambda optimizer: get_constant_schedule_with_warmup(optimizer, 5), 12)
    ours = [Constant(warmup=5).factor(step, 10) for step in range(11)]
    assert theirs[0] == 0
    assert ours == pytest.approx(theirs[1:], rel=1e-15)

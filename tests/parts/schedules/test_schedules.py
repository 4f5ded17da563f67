"""What holds for every schedule, found by listing the folder."""

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pellucid.errors import ConfigError
from pellucid.parts import find, kinds
from pellucid.parts.schedules import ScheduleConfig

KINDS = kinds("schedules")
share = some.floats(0, 1)
count = some.integers(0, 10**7)


def made(kind: str, **values: object) -> ScheduleConfig:
    part = find("schedules", kind)
    known = {field.name for field in dataclasses.fields(part)}
    return part(**{name: value for name, value in values.items() if name in known})  # type: ignore[return-value]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=100, deadline=None)
@given(warmup=count, steps=count, step=some.integers(0, 10**9), floor=share, decay=share)
def test_a_factor_is_from_0_to_1_at_any_step_of_any_run(
    kind: str, warmup: int, steps: int, step: int, floor: float, decay: float
) -> None:
    factor = made(kind, warmup=warmup, floor=floor, decay=decay).factor(step, steps)
    assert math.isfinite(factor)
    assert 0 <= factor <= 1


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(warmup=some.integers(0, 50), steps=some.integers(1, 200), floor=share, decay=share)
def test_a_factor_rises_while_warming_up_and_never_after(
    kind: str, warmup: int, steps: int, floor: float, decay: float
) -> None:
    part = made(kind, warmup=warmup, floor=floor, decay=decay)
    factors = [part.factor(step, steps) for step in range(steps + warmup + 20)]
    assert factors[:warmup] == pytest.approx([(step + 1) / warmup for step in range(warmup)], rel=1e-15)
    assert factors[warmup:] == sorted(factors[warmup:], reverse=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("warmup", [0, 1, 7])
def test_no_update_of_a_run_is_made_with_the_rate_0(kind: str, warmup: int) -> None:
    """Neither the first (a warm-up that starts at 0 wastes it) nor the last."""
    part = made(kind, warmup=warmup)
    assert min(part.factor(step, 40) for step in range(40)) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_settings_that_make_no_schedule_are_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"{kind}.*-1 steps"):
        made(kind, warmup=-1)
    for name in ("floor", "decay"):
        if any(field.name == name for field in dataclasses.fields(find("schedules", kind))):
            with pytest.raises(ConfigError, match=f"{kind}.*{name}.*0 to 1"):
                ScheduleConfig.read({"kind": kind, name: 1.5})

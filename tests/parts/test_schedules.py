"""Schedules against torch's, transformers' and those of their papers, and by hand."""

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from transformers.optimization import (
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
    get_cosine_with_min_lr_schedule_with_warmup,
    get_inverse_sqrt_schedule,
    get_linear_schedule_with_warmup,
    get_wsd_schedule,
)

from pellucid.base.errors import ConfigError
from pellucid.parts import find, kinds
from pellucid.parts.schedules import (
    Constant,
    Cosine,
    InverseSqrt,
    LinearDecay,
    ScheduleConfig,
    WarmupStableDecay,
)

KINDS = kinds("schedules")
fraction = some.floats(0, 1)
count = some.integers(0, 10**7)


def make(kind: str, **values: object) -> ScheduleConfig:
    part = find("schedules", kind)
    known = {field.name for field in dataclasses.fields(part)}
    return part(**{name: value for name, value in values.items() if name in known})  # type: ignore[return-value]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=100, deadline=None)
@given(warmup=count, steps=count, step=some.integers(0, 10**9), floor=fraction, decay=fraction)
def test_a_factor_is_from_0_to_1_at_any_step_of_any_run(
    kind: str, warmup: int, steps: int, step: int, floor: float, decay: float
) -> None:
    factor = make(kind, warmup=warmup, floor=floor, decay=decay).factor(step, steps)
    assert math.isfinite(factor)
    assert 0 <= factor <= 1


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(warmup=some.integers(0, 50), steps=some.integers(1, 200), floor=fraction, decay=fraction)
def test_a_factor_rises_while_warming_up_and_never_after(
    kind: str, warmup: int, steps: int, floor: float, decay: float
) -> None:
    part = make(kind, warmup=warmup, floor=floor, decay=decay)
    factors = [part.factor(step, steps) for step in range(steps + warmup + 20)]
    assert factors[:warmup] == pytest.approx([(step + 1) / warmup for step in range(warmup)], rel=1e-15)
    assert factors[warmup:] == sorted(factors[warmup:], reverse=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("warmup", [0, 1, 7])
def test_no_update_of_a_run_is_made_with_the_rate_0(kind: str, warmup: int) -> None:
    """Neither the first (a warm-up that starts at 0 wastes it) nor the last."""
    part = make(kind, warmup=warmup)
    assert min(part.factor(step, 40) for step in range(40)) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_invalid_settings_are_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"{kind}.*-1 steps"):
        make(kind, warmup=-1)
    for name in ("floor", "decay"):
        if any(field.name == name for field in dataclasses.fields(find("schedules", kind))):
            with pytest.raises(ConfigError, match=f"{kind}.*{name}.*1.5"):
                ScheduleConfig.read({"kind": kind, name: 1.5})


def factors(make: Callable[[torch.optim.Optimizer], Any], count: int) -> list[float]:
    """Returns the learning rates of another library's schedule of the rate 1."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule, found = make(optimizer), []
    for _ in range(count):
        found.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            schedule.step()
    return found


# ---- constant


def test_a_constant_rate_by_hand() -> None:
    part = Constant(warmup=4)
    assert [part.factor(step, 8) for step in (0, 1, 2, 3, 4, 7, 8, 1000)] == [0.25, 0.5, 0.75, 1, 1, 1, 1, 1]
    assert Constant().factor(0, 8) == 1


def test_constant_it_is_transformers_one_step_earlier_while_warming_up() -> None:
    """Theirs makes the first update with a rate of 0."""
    theirs = factors(lambda optimizer: get_constant_schedule_with_warmup(optimizer, 5), 12)
    ours = [Constant(warmup=5).factor(step, 10) for step in range(11)]
    assert theirs[0] == 0
    assert ours == pytest.approx(theirs[1:], rel=1e-15)


# ---- linear


def test_a_line_by_hand() -> None:
    part = LinearDecay(warmup=2)
    assert [part.factor(step, 6) for step in range(8)] == [0.5, 1, 1, 0.75, 0.5, 0.25, 0, 0]
    assert LinearDecay(floor=0.2).factor(5, 10) == pytest.approx(0.6)
    assert LinearDecay(floor=0.2).factor(50, 10) == pytest.approx(0.2)


def test_linear_after_the_warm_up_it_is_transformers() -> None:
    theirs = factors(lambda optimizer: get_linear_schedule_with_warmup(optimizer, 4, 25), 30)
    ours = [LinearDecay(warmup=4).factor(step, 25) for step in range(30)]
    assert ours[4:] == pytest.approx(theirs[4:], abs=1e-15)
    assert ours[:4] == pytest.approx(theirs[1:5], rel=1e-15)


# ---- cosine


def ours(part: Cosine, steps: int, count: int) -> list[float]:
    return [part.factor(step, steps) for step in range(count)]


def test_a_cosine_by_hand() -> None:
    """A third of the way cos(π/3) = 1/2, half of it 0, two thirds −1/2."""
    part = Cosine(warmup=2)
    assert ours(part, 8, 9) == pytest.approx(
        [0.5, 1, 1, (1 + math.sqrt(3) / 2) / 2, 0.75, 0.5, 0.25, (1 - math.sqrt(3) / 2) / 2, 0], abs=1e-15
    )
    assert Cosine(floor=0.1).factor(5, 10) == pytest.approx(0.55)


def test_cosine_it_is_torchs_cosine_annealing() -> None:
    theirs = factors(
        lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20, eta_min=0.1), 21
    )
    assert ours(Cosine(floor=0.1), 20, 21) == pytest.approx(theirs, rel=1e-12)


def test_cosine_after_the_warm_up_it_is_transformers() -> None:
    theirs = factors(lambda optimizer: get_cosine_schedule_with_warmup(optimizer, 5, 30), 31)
    assert ours(Cosine(warmup=5), 30, 31)[5:] == pytest.approx(theirs[5:], abs=1e-15)
    theirs = factors(
        lambda optimizer: get_cosine_with_min_lr_schedule_with_warmup(optimizer, 5, 30, min_lr_rate=0.2), 31
    )
    assert ours(Cosine(warmup=5, floor=0.2), 30, 31)[5:] == pytest.approx(theirs[5:], abs=1e-15)


def test_cosine_past_the_end_it_stays_where_the_formula_alone_would_rise_again() -> None:
    """Unclamped, half of (1 + cos 1.2π) is 0.095, and at twice the length 1."""
    part = Cosine()
    assert (1 + math.cos(1.2 * math.pi)) / 2 == pytest.approx(0.095, abs=5e-4)
    assert part.factor(120, 100) == part.factor(200, 100) == part.factor(10**9, 100) == 0
    assert Cosine(floor=0.1).factor(200, 100) == pytest.approx(0.1)


# ---- inverse_sqrt


def paper(n: int, d_model: int, warmup: int) -> float:
    """Section 5.3, equation 3: the rate of step number n, from 1."""
    return float(d_model**-0.5 * min(n**-0.5, n * warmup**-1.5))


@pytest.mark.parametrize(("d_model", "warmup"), [(512, 4000), (64, 10), (1024, 1)])
def test_inverse_sqrt_it_is_the_papers_rate_at_the_papers_highest(d_model: int, warmup: int) -> None:
    highest = (d_model * warmup) ** -0.5
    part = InverseSqrt(warmup=warmup)
    for n in (1, 2, 9, 10, 11, 3999, 4000, 4001, 100_000):
        assert highest * part.factor(n - 1, 100_000) == pytest.approx(paper(n, d_model, warmup), rel=1e-14)


def test_the_base_model_of_the_paper_peaks_at_seven_ten_thousandths() -> None:
    """512^−½ · 4000^−½ = 0.00069877, at its step 4000; a quarter of it at step 1,000 and half at 16,000."""
    part = InverseSqrt()
    assert paper(4000, 512, 4000) == pytest.approx(6.9877e-4, rel=1e-4)
    assert [part.factor(n - 1, 0) for n in (1000, 4000, 16_000)] == [0.25, 1, 0.5]


def test_inverse_sqrt_it_is_transformers_one_step_earlier() -> None:
    theirs = factors(lambda optimizer: get_inverse_sqrt_schedule(optimizer, 6), 40)
    assert [InverseSqrt(warmup=6).factor(step, 0) for step in range(39)] == pytest.approx(
        theirs[1:], rel=1e-14
    )


def test_inverse_sqrt_without_a_warm_up_it_falls_from_the_first_step() -> None:
    assert [InverseSqrt(warmup=0).factor(step, 9) for step in (0, 3, 8)] == pytest.approx([1, 1 / 2, 1 / 3])


# ---- warmup_stable_decay


def test_three_phases_by_hand() -> None:
    """Ten steps: two to warm up, four whole, the last four down to nothing."""
    part = WarmupStableDecay(warmup=2, decay=0.4)
    assert [part.factor(step, 10) for step in range(12)] == [0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0, 0]


@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_warmup_stable_decay_after_the_warm_up_it_is_transformers_with_a_straight_decay(floor: float) -> None:
    theirs = factors(
        lambda optimizer: get_wsd_schedule(
            optimizer, 5, 12, num_training_steps=60, decay_type="linear", min_lr_ratio=floor
        ),
        70,
    )
    part = WarmupStableDecay(warmup=5, decay=0.2, floor=floor)
    assert [part.factor(step, 60) for step in range(5, 70)] == pytest.approx(theirs[5:], abs=1e-15)


def test_warmup_stable_decay_until_the_decay_begins_the_length_does_not_matter() -> None:
    part = WarmupStableDecay(warmup=3)
    assert [part.factor(t, 100) for t in range(80)] == [part.factor(t, 10**6) for t in range(80)]


def test_warmup_stable_decay_a_warm_up_longer_than_the_stable_phase_is_finished_first() -> None:
    part = WarmupStableDecay(warmup=6, decay=0.9)
    assert [part.factor(step, 10) for step in range(5, 10)] == [1, 1, 0.75, 0.5, 0.25]


def test_warmup_stable_decay_a_decay_over_no_share_of_the_run_never_comes() -> None:
    assert [WarmupStableDecay(decay=0.0).factor(step, 4) for step in range(6)] == [1] * 6

"""The first Transformer's schedule against the formula of its paper, and transformers' own."""

import pytest
from transformers.optimization import get_inverse_sqrt_schedule

from pellucid.parts.schedules.inverse_sqrt import InverseSqrt
from tests.parts.schedules.theirs import factors


def paper(n: int, d_model: int, warmup: int) -> float:
    """Section 5.3, equation 3: the rate of step number n, from 1."""
    return float(d_model**-0.5 * min(n**-0.5, n * warmup**-1.5))


@pytest.mark.parametrize(("d_model", "warmup"), [(512, 4000), (64, 10), (1024, 1)])
def test_it_is_the_papers_rate_at_the_papers_highest(d_model: int, warmup: int) -> None:
    highest = (d_model * warmup) ** -0.5
    part = InverseSqrt(warmup=warmup)
    for n in (1, 2, 9, 10, 11, 3999, 4000, 4001, 100_000):
        assert highest * part.factor(n - 1, 100_000) == pytest.approx(paper(n, d_model, warmup), rel=1e-14)


def test_the_base_model_of_the_paper_peaks_at_seven_ten_thousandths() -> None:
    """512^−½ · 4000^−½ = 0.00069877, at its step 4000; a quarter of it at step 1,000 and half at 16,000."""
    part = InverseSqrt()
    assert paper(4000, 512, 4000) == pytest.approx(6.9877e-4, rel=1e-4)
    assert [part.factor(n - 1, 0) for n in (1000, 4000, 16_000)] == [0.25, 1, 0.5]


def test_it_is_transformers_one_step_earlier() -> None:
    theirs = factors(lambda optimizer: get_inverse_sqrt_schedule(optimizer, 6), 40)
    assert [InverseSqrt(warmup=6).factor(step, 0) for step in range(39)] == pytest.approx(
        theirs[1:], rel=1e-14
    )


def test_without_a_warm_up_it_falls_from_the_first_step() -> None:
    assert [InverseSqrt(warmup=0).factor(step, 9) for step in (0, 3, 8)] == pytest.approx([1, 1 / 2, 1 / 3])

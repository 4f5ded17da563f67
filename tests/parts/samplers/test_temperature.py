"""Temperature: as in transformers, by hand, and down to the smallest numbers."""

import math

import pytest
import torch
from transformers import TemperatureLogitsWarper

from pellucid.base.errors import ConfigError
from pellucid.parts.samplers.temperature import Temperature
from tests.parts.samplers.rows import agree, apply, check_twin, log_softmax, many, random_rows


@many
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_the_probabilities_are_those_of_transformers(count: int, temperature: float) -> None:
    rows = random_rows(count)
    theirs = TemperatureLogitsWarper(temperature)(torch.zeros(count, 1), rows)
    agree(log_softmax(apply(Temperature(temperature), rows)), log_softmax(theirs))


def test_the_tape_computes_the_same() -> None:
    check_twin(Temperature(0.7), random_rows(30))


def test_odds_are_raised_to_the_power_of_one_over_t() -> None:
    """Odds of 9 to 1 become 3 to 1 at T = 2, and 81 to 1 at T = ½."""
    row = [math.log(0.9), math.log(0.1)]
    assert apply(Temperature(2.0), row).softmax(-1).tolist() == pytest.approx([0.75, 0.25])
    assert apply(Temperature(0.5), row).softmax(-1).tolist() == pytest.approx([81 / 82, 1 / 82])


@pytest.mark.parametrize("temperature", [1e-6, 1e-300, 1e-320])
def test_the_smallest_temperature_leaves_the_largest_score(temperature: float) -> None:
    after = apply(Temperature(temperature), [1.0, 3.0, 3.0, -math.inf, 2.0]).softmax(-1)
    assert after.tolist() == [0, 0.5, 0.5, 0, 0]


def test_a_temperature_of_zero_is_not_a_division() -> None:
    with pytest.raises(ConfigError, match="greedy"):
        Temperature(0.0)

"""The error that a score may have is bounded by the largest logit, however wrong the run it is taken from."""

import math

import pytest
import torch

from pellucid.verification.checks.generation.whole_model import limit_error


@pytest.mark.parametrize("error", [1e-3, 0.1, 10.0, math.inf])
def test_a_wrong_run_allows_a_hundredth_of_a_nat_in_float32(error: float) -> None:
    assert limit_error(torch.float32, error, 8.0) == pytest.approx(0.01)


def test_a_healthy_run_allows_16_times_its_error_and_the_floor_at_least() -> None:
    assert limit_error(torch.float32, 1e-5, 8.0) == pytest.approx(1.6e-4)
    assert limit_error(torch.float32, 0.0, 8.0) == 1e-5


def test_large_logits_and_keys_in_16_bits_allow_more() -> None:
    assert limit_error(torch.float32, 1.0, 1000.0) == pytest.approx(1.0)
    assert limit_error(torch.float32, 1.0, 8.0, torch.float16) == pytest.approx(0.2)
    assert limit_error(torch.float32, 1.0, 8.0, torch.float32) == pytest.approx(0.01)

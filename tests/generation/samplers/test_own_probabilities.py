"""The most probable tokens of a row: as a sort of all finds them, and the same whatever stands beside it."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pellucid.generation.samplers.own_probabilities import compute_logprobs, find_top, measure_uncertainty
from pellucid.generation.samplers.row_operations import to_array

FEW = st.sampled_from([-math.inf, -2.0, -1.0, 0.0, 1.0])
"""So few values that most rows have ties."""


@given(st.lists(FEW, min_size=1, max_size=30).filter(lambda row: max(row) > -math.inf), st.integers(1, 20))
def test_the_top_is_the_beginning_of_a_sort_with_ties_by_id(row: list[float], count: int) -> None:
    own = compute_logprobs(torch.tensor(row))
    wanted = sorted((-value, id) for id, value in enumerate(own.tolist()) if value > -math.inf)
    assert find_top(own, count) == tuple((id, -value) for value, id in wanted[:count])


def test_entropy_and_surprisal_are_those_of_a_hand_calculation() -> None:
    logits = torch.tensor([0.0, math.log(2), math.log(2)]).double()  # p = 1/5, 2/5, 2/5
    found = measure_uncertainty(to_array(logits), to_array(compute_logprobs(logits)), 2)
    entropy = math.log(5) - 0.8 * math.log(2)
    assert found.rank == 1
    assert (found.entropy, found.surprisal) == pytest.approx((entropy, math.log(2.5)))


def test_a_token_without_probability_adds_nothing_to_the_entropy() -> None:
    logits = torch.tensor([0.0, -math.inf]).double()
    found = measure_uncertainty(to_array(logits), to_array(compute_logprobs(logits)), 1)
    assert (found.entropy, found.rank, found.surprisal) == (0.0, 1, math.inf)

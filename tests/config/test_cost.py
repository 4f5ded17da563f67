"""Costs agree with what a run really holds and with counts made by hand."""

import math

import pytest

from pellucid.config import preset, presets
from pellucid.config.cost import cost, total
from pellucid.reference.training import forward
from tests.reference.models import CONFIGS, weights


@pytest.mark.parametrize("name", presets())
def test_the_parts_hold_all_parameters(name: str) -> None:
    config = preset(name)
    assert total(cost(config)).parameters == sum(map(math.prod, config.parameters().values()))


@pytest.mark.parametrize("name", CONFIGS)
def test_activation_bytes_are_those_of_a_run(name: str) -> None:
    config = CONFIGS[name]
    tape = forward(config, weights(config), [[1, 2, 0], [0, 0, 1]])
    held = sum(
        value.nbytes
        for value, role in zip(tape.values.values(), tape.roles.values(), strict=True)
        if role == "act"
    )
    assert total(cost(config, batch=2, length=3, width=8)).activation_bytes == held


@pytest.mark.parametrize("name", CONFIGS)
def test_cache_bytes_are_those_of_a_run(name: str) -> None:
    from pellucid.reference.transformer import cache

    config = CONFIGS[name]
    if config.mask.bidirectional_prefix:  # nothing can be kept
        assert total(cost(config)).cache_bytes == 0
        return
    kept = cache(forward(config, weights(config), [[1, 2, 0]]), config)
    assert total(cost(config, length=3, width=8)).cache_bytes == sum(value.nbytes for value in kept.values())


def test_gpt2_costs_what_one_counts_by_hand() -> None:
    """Per layer and token 12 C² multiply-adds and 2 T C for scores and mixture; logits C V."""
    layers, c, t, v = 12, 768, 1024, 50257
    costs = cost(preset("gpt2"))
    assert total(costs).flops == 2 * t * (layers * (12 * c**2 + 2 * t * c) + c * v)
    assert costs["attention"].cache_bytes == 2 * layers * t * c * 2 == 37_748_736
    assert round(costs["feed-forward"].parameters / total(costs).parameters, 3) == 0.455

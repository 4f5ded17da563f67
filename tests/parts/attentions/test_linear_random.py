"""Positive random features: the directions, the formula by hand, and the exponential that they stand for."""

import math
from itertools import pairwise

import numpy as np
import pytest

from pellucid.base.errors import ConfigError
from pellucid.interpretability.attention_distance import distance
from pellucid.parts.attentions.linear_random import LinearRandom
from pellucid.reference.ops.features import random_features
from tests.parts.attentions.heads import config_of, drawn, heads


def test_one_feature_by_hand() -> None:
    """ω = (2, 0), x = (1, 3), D = 16, so x' = x / 2: e^(1 − (¼ + 9/4) / 2) / √4."""
    found = random_features.forward(np.array([[1.0, 3.0]]), np.array([[2.0, 0.0]]), 16**-0.25, 4)
    assert found[0, 0] == pytest.approx(math.exp(1 - 1.25) / 2, rel=1e-15)


def test_directions_of_a_block_stand_at_right_angles_and_another_block_starts_anew() -> None:
    directions = LinearRandom(features=11, seed=3).directions(4)
    assert directions.shape == (11, 4)
    for block in (directions[:4], directions[4:8], directions[8:]):
        products = block @ block.T
        np.testing.assert_allclose(products, np.diag(np.diag(products)), atol=1e-14)
    assert abs(directions[0] @ directions[4]) > 1e-3


def test_a_direction_has_the_length_of_a_normal_draw() -> None:
    """|ω|² is a sum of D squares: mean D, variance 2D; and no channel is preferred."""
    directions = LinearRandom(features=4000).directions(8)
    squares = (directions**2).sum(1)
    assert squares.mean() == pytest.approx(8, abs=4 * math.sqrt(16 / 4000))
    assert squares.var() == pytest.approx(16, rel=0.15)
    assert np.abs(directions.mean(0)).max() < 0.07


def test_the_seed_alone_decides_the_directions() -> None:
    one, same, other = (LinearRandom(seed=seed).directions(4) for seed in (5, 5, 6))
    assert np.array_equal(one, same) and not np.allclose(one, other)
    assert one[0, 0] == pytest.approx(LinearRandom(features=1, seed=5).directions(4)[0, 0])


def test_the_mean_of_phi_q_times_phi_k_is_the_exponential_of_the_score() -> None:
    """E[φ(q)·φ(k)] = e^(q·k / √D): the exponential, not the softmax of it."""
    q, k = np.array([0.5, -0.3, 0.8, 0.1]), np.array([0.2, 0.4, 0.9, -0.6])
    directions = LinearRandom(features=100_000).directions(4)
    phi_q, phi_k = (random_features.forward(x[None], directions, 4**-0.25, 100_000)[0] for x in (q, k))
    assert phi_q @ phi_k == pytest.approx(math.exp(q @ k / 2), rel=0.02)


def test_the_pattern_nears_softmax_s_with_one_over_the_root_of_the_features() -> None:
    q, k, v = (0.3 * x for x in drawn(2, h=2, k=1, t=8, s=8, d=4, b=1))
    softmax = heads(config_of("softmax", n_head=2, n_kv_head=1, d_head=4), q, k, v)["attn.pattern"]
    counts, errors = [32, 128, 512, 2048], []
    for count in counts:
        off = []
        for seed in range(12):
            kind = {"kind": "linear_random", "features": count, "seed": seed}
            tape = heads(config_of(kind, n_head=2, n_kv_head=1, d_head=4), q, k, v)
            off.append(distance(softmax, tape["attn.pattern"])[0])
        errors.append(np.mean(off))
    assert all(more > less for more, less in pairwise(errors))
    slope = np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.1)


@pytest.mark.parametrize("size", [1e-3, 10.0, 1e3, 1e6])
def test_large_and_small_inputs_stay_finite(size: float) -> None:
    q, k, v = drawn(3, d=4)
    tape = heads(config_of("linear_random", n_head=4, n_kv_head=2, d_head=4), size * q, size * k, v)
    for name, value in tape.values.items():
        assert np.isfinite(value).all(), name
    if size == 1e6:  # every feature has vanished: nothing is taken
        assert not tape["attn.z"].any()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"features": 0}, r"linear_random needs from 1 to 65,536 features, not 0"),
        ({"seed": -1}, r"linear_random needs a seed from 0 to 4,294,967,295, not -1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, int], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        config_of({"kind": "linear_random", **settings})

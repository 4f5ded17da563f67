"""The distance of linear attention from softmax's, by hand and as a table."""

import math

import numpy as np
import pytest

from pellucid.base.errors import UsageError
from pellucid.config import ModelConfig
from pellucid.interpretability.attention_distance import distance, distances, table
from tests.reference.models import weights

SIZES = {"vocab_size": 7, "context_length": 8, "n_layer": 2, "n_head": 2, "d_model": 8, "d_ff": 6}
IDS = [[1, 3, 1, 5, 0, 2, 6, 4]]


def config_of(attention: object, **more: object) -> ModelConfig:
    return ModelConfig.from_dict(SIZES | {"attention": attention} | more)


def test_two_patterns_by_hand() -> None:
    """(½, ½) against (¼, ¾): a quarter stands elsewhere, and KL = ½ ln 2 + ½ ln ⅔."""
    apart, kl = distance(np.array([[0.5, 0.5]]), np.array([[0.25, 0.75]]))
    assert apart == 0.25 and kl == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3), rel=1e-14)


def test_a_pattern_is_nothing_away_from_itself_and_all_from_what_it_never_looks_at() -> None:
    p = np.array([[0.0, 1.0]])
    assert distance(p, p) == (0, 0)
    assert distance(p, p[:, ::-1]) == (1, math.inf)


def test_more_features_come_nearer_to_softmax_in_every_layer() -> None:
    config = config_of("linear_random", qk_norm="rms_norm")
    values = weights(config, scale=0.3)
    few, many = (
        distances(config_of({"kind": "linear_random", "features": count}, qk_norm="rms_norm"), values, IDS)
        for count in (4, 4096)
    )
    for less, more in zip(few, many, strict=True):
        assert more.total_variation < 0.3 * less.total_variation and more.kl < 0.3 * less.kl


@pytest.mark.parametrize("positions", ["rope", "learned"])
def test_each_layer_has_a_row(positions: str) -> None:
    config = config_of("linear_elu", positions=positions)
    head, names, *rows = table(config, weights(config), IDS)
    assert head == "attention linear_elu and softmax on the same queries and keys, mean over rows:"
    assert names.split() == ["layer", "total", "variation", "KL,", "nats"]
    assert [row.split()[0] for row in rows] == ["0", "1"]
    assert all(
        0 < entry.total_variation < 1 and entry.kl > 0 for entry in distances(config, weights(config), IDS)
    )


def test_softmax_has_no_distance_from_itself_to_ask_for() -> None:
    config = config_of("softmax")
    with pytest.raises(UsageError, match="attention 'softmax' has no feature map"):
        distances(config, weights(config), IDS)

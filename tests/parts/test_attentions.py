"""Attention by kind: against PyTorch and formulas in it, by hand, and what a kind cannot be combined with."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import elu, scaled_dot_product_attention

import pellucid
from pellucid.base.errors import ConfigError
from pellucid.config import ModelConfig
from pellucid.interpretability.attention_distance import distance
from pellucid.parts.attentions import LinearAttentionConfig
from pellucid.parts.attentions.linear_random import LinearRandom
from pellucid.reference.op import Array
from pellucid.reference.ops import find_op
from pellucid.reference.ops.features import random_features
from pellucid.reference.training import forward
from tests.parts.attentions.heads import config_of, drawn, heads
from tests.reference.models import weights

KINDS = ("linear_elu", "linear_relu", "linear_random")


def check_in_torch(
    attention: Any, compute: Callable[[Tensor, Tensor, Tensor], Tensor], arrays: list[Array]
) -> None:
    """Fails unless z and its gradients are those of a formula in torch; two query heads read a key head."""
    q, k, v = (torch.tensor(x, requires_grad=True) for x in arrays)
    z = compute(q, k, v)
    tape = heads(config_of(attention, n_head=4, n_kv_head=2, d_head=arrays[0].shape[-1]), *arrays)
    np.testing.assert_allclose(tape["attn.z"], z.detach().numpy(), rtol=0, atol=5e-14)
    (z * torch.tensor(tape["weight"])).sum().backward()
    for name, x in (("q", q), ("k", k), ("v", v)):
        assert x.grad is not None
        np.testing.assert_allclose(tape[f"d.{name}"], x.grad.numpy(), rtol=0, atol=1e-12)


# ---- softmax, whole and in tiles


SIZES = {
    "vocab_size": 5,
    "context_length": 4,
    "n_layer": 1,
    "n_head": 4,
    "d_model": 8,
    "attention": "softmax",
}


@pytest.mark.parametrize("mask", ["causal", "none"])
@pytest.mark.parametrize("n_kv_head", [1, 2, 4])
def test_softmax_attention_equals_pytorch_s(n_kv_head: int, mask: str) -> None:
    config = ModelConfig.from_dict(SIZES | {"n_kv_head": n_kv_head, "mask": mask})
    tape = forward(config, weights(config), [[1, 3, 0, 2], [4, 4, 2, 1]])
    q, k, v = (torch.tensor(tape[f"blocks.0.attn.{name}"]) for name in ("q_rot", "k_rot", "v"))
    wanted = scaled_dot_product_attention(q, k, v, is_causal=mask == "causal", enable_gqa=True)
    assert tape["blocks.0.attn.z"] == pytest.approx(wanted.numpy(), abs=1e-13)


def test_softmax_attention_of_the_teaching_model_by_hand() -> None:
    """B asks (0, 2); A's key (1, 0) answers 0 and its own (0, 1) answers 2, divided by √2. So B takes
    1 / (1 + e^√2) = .19557 from A, and the rest from itself."""
    tape = pellucid.load("abcd").trace("A B").tape
    first = 1 / (1 + math.exp(2**0.5))
    assert tape["blocks.0.attn.pattern"][0, 0, 1] == pytest.approx([first, 1 - first], abs=1e-12)
    assert tape["blocks.0.attn.z"][0, 0, 1] == pytest.approx([0.19557, 0.80443], abs=5e-6)


@pytest.mark.parametrize("tile", [1, 2, 4, 8])
def test_tiled_values_and_gradients_are_those_of_pytorch(tile: int) -> None:
    def compute(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    check_in_torch({"kind": "tiled", "tile": tile}, compute, drawn(6, t=7, s=7, d=4))


# ---- linear attention


def test_linear_elu_of_two_tokens_by_hand() -> None:
    """φ(1) = 2, φ(−ln 2) = ½, φ(0) = 1: the second query finds ½ and 1, a third and two thirds."""
    config = config_of("linear_elu", d_head=1)
    tape = heads(config, [[[[1.0], [-math.log(2)]]]], [[[[0.0], [1.0]]]], [[[[3.0], [6.0]]]])
    np.testing.assert_allclose(tape["attn.kernel"][0, 0], [[2, 0], [0.5, 1]], rtol=1e-15)
    np.testing.assert_allclose(tape["attn.pattern"][0, 0], [[1, 0], [1 / 3, 2 / 3]], rtol=1e-15)
    np.testing.assert_allclose(tape["attn.z"][0, 0], [[3], [5]], rtol=1e-15)


def test_linear_relu_of_two_tokens_by_hand() -> None:
    """φ(q) = (2, 0), (1, 3) and φ(k) = (1, 0), (1, 1): the second query finds 1 and 4."""
    config = config_of("linear_relu", d_head=2)
    q, k = [[[[2.0, -1.0], [1.0, 3.0]]]], [[[[1.0, -5.0], [1.0, 1.0]]]]
    tape = heads(config, q, k, [[[[10.0, 0.0], [0.0, 5.0]]]])
    np.testing.assert_allclose(tape["attn.kernel"][0, 0], [[2, 0], [1, 4]], rtol=1e-15)
    np.testing.assert_allclose(tape["attn.pattern"][0, 0], [[1, 0], [0.2, 0.8]], rtol=1e-15)
    np.testing.assert_allclose(tape["attn.z"][0, 0], [[10, 0], [2, 4]], rtol=1e-15)


def test_the_feature_is_pytorch_s_elu_plus_one() -> None:
    x = np.concatenate([np.linspace(-6, 6, 49), [-40.0, 40.0]])
    theirs = elu(torch.tensor(x)) + 1
    op = find_op(config_of("linear_elu").attention.feature)  # type: ignore[attr-defined]
    np.testing.assert_allclose(op.forward(x), theirs.numpy(), rtol=0, atol=1e-15)


def test_linear_elu_is_the_paper_s_formula_in_values_and_gradients() -> None:
    """φ(q_i) Σ φ(k_j)ᵀ v_j / φ(q_i)·Σ φ(k_j) over j ≤ i, in torch; heads 0 and 1 read key head 0."""

    def compute(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        features, out = [elu(x) + 1 for x in (q, k)], torch.zeros(2, 4, 5, 3, dtype=torch.float64)
        for b, h, i in np.ndindex(2, 4, 5):
            phi_q, phi_k = features[0][b, h, i], features[1][b, h // 2, : i + 1]
            out[b, h, i] = phi_q @ (phi_k.T @ v[b, h // 2, : i + 1]) / (phi_q @ phi_k.sum(0))
        return out

    check_in_torch("linear_elu", compute, drawn(0))


def test_linear_relu_equals_an_independent_calculation_in_values_and_gradients() -> None:
    def compute(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        kernel = torch.einsum("bktd,bksd->bkts", q.relu(), k.relu().repeat_interleave(2, 1)).tril()
        return kernel / kernel.sum(-1, keepdim=True) @ v.repeat_interleave(2, 1)

    arrays = drawn(0)
    for x in arrays[:2]:
        x[..., 0] = 0.5 + np.abs(x[..., 0])  # so that every query finds something
    check_in_torch("linear_relu", compute, arrays)


def test_a_query_that_finds_nothing_takes_nothing_and_learns_nothing() -> None:
    config = config_of("linear_relu", d_head=2)
    q, k = [[[[-2.0, -1.0], [1.0, -3.0]]]], [[[[-1.0, 2.0], [-1.0, 1.0]]]]
    tape = heads(config, q, k, [[[[10.0, 0.0], [0.0, 5.0]]]])
    assert not tape["attn.kernel"].any()
    for name in ("attn.pattern", "attn.z", "d.q", "d.k", "d.v"):
        assert not tape[name].any(), name


def test_without_a_mask_every_key_is_in_the_sum() -> None:
    q, k, v = drawn(1, h=1, k=1, b=1)
    tape = heads(config_of("linear_elu", mask="none", d_head=3), q, k, v, allowed=None)
    phi_q, phi_k = (elu(torch.tensor(x[0, 0])) + 1 for x in (q, k))
    wanted = phi_q @ (phi_k.T @ torch.tensor(v[0, 0])) / (phi_q @ phi_k.sum(0))[:, None]
    np.testing.assert_allclose(tape["attn.z"][0, 0], wanted.numpy(), rtol=1e-12)
    np.testing.assert_allclose(tape["attn.pattern"].sum(-1), 1, rtol=1e-14)


def test_adding_the_past_to_a_state_costs_the_same_at_any_length() -> None:
    config = config_of("linear_elu", n_head=4, n_kv_head=2, d_head=3)
    part = config.attention
    assert part.count_cached(config, 10) == part.count_cached(config, 10_000) == 2 * 3 * (3 + 1)
    assert part.operations(config, 8192) / part.operations(config, 4096) == 2
    softmax = config_of("softmax").attention
    assert softmax.operations(config, 8192) / softmax.operations(config, 4096) == 4


# ---- random features


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


# ---- what cannot be


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("choice", "why"),
    [
        ({"positions": "alibi"}, "positions 'alibi'"),
        ({"positions": "t5"}, "positions 't5'"),
        ({"positions": "rope_yarn", "d_head": 4}, "positions 'rope_yarn'"),
        ({"score_cap": "tanh"}, "score_cap 'tanh'"),
        ({"mask": {"kind": "window", "size": 3}}, "mask 'window'"),
        ({"mask": {"kind": "prefix", "length": 2}}, "mask 'prefix'"),
        ({"dropout": "bernoulli"}, "dropout"),
    ],
)
def test_what_running_sums_cannot_do_is_refused(kind: str, choice: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        config_of(kind, **choice)


@pytest.mark.parametrize("kind", KINDS)
def test_what_running_sums_can_do_is_allowed(kind: str) -> None:
    allowed = {"positions": "rope", "d_head": 4, "dropout": {"kind": "bernoulli", "pattern": 0.0}}
    assert isinstance(
        config_of(kind, **allowed, mask="none", qk_norm="rms_norm").attention, LinearAttentionConfig
    )


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"kind": "linear_random", "features": 0}, r"linear_random needs from 1 to 65,536 features, not 0"),
        (
            {"kind": "linear_random", "seed": -1},
            r"linear_random needs a seed from 0 to 4,294,967,295, not -1",
        ),
        ({"kind": "tiled", "tile": 0}, "from 1 key to 2,147,483,648"),
        ("tiled", "tile = 128"),  # its size is required
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        config_of(settings)


def test_dropout_of_a_pattern_that_is_never_whole_is_refused() -> None:
    with pytest.raises(ConfigError, match="tiled"):
        config_of({"kind": "tiled", "tile": 2}, dropout="bernoulli")
    config_of({"kind": "tiled", "tile": 2}, dropout={"kind": "bernoulli", "pattern": 0.0})

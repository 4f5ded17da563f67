"""Linear attention with elu(x) + 1: two tokens by hand, the paper's formula in torch, and what it refuses."""

import math

import numpy as np
import pytest
import torch

from pellucid.base.errors import ConfigError
from pellucid.parts.attentions import LinearAttentionConfig
from pellucid.reference.ops import find_op
from tests.parts.attentions.heads import config_of, drawn, heads

KINDS = ("linear_elu", "linear_relu", "linear_random")


def test_two_tokens_by_hand() -> None:
    """φ(1) = 2, φ(−ln 2) = ½, φ(0) = 1: the second query finds ½ and 1, a third and two thirds."""
    config = config_of("linear_elu", d_head=1)
    tape = heads(config, [[[[1.0], [-math.log(2)]]]], [[[[0.0], [1.0]]]], [[[[3.0], [6.0]]]])
    np.testing.assert_allclose(tape["attn.kernel"][0, 0], [[2, 0], [0.5, 1]], rtol=1e-15)
    np.testing.assert_allclose(tape["attn.pattern"][0, 0], [[1, 0], [1 / 3, 2 / 3]], rtol=1e-15)
    np.testing.assert_allclose(tape["attn.z"][0, 0], [[3], [5]], rtol=1e-15)


def test_the_feature_is_pytorch_s_elu_plus_one() -> None:
    x = np.concatenate([np.linspace(-6, 6, 49), [-40.0, 40.0]])
    theirs = torch.nn.functional.elu(torch.tensor(x)) + 1
    op = find_op(config_of("linear_elu").attention.feature)  # type: ignore[attr-defined]
    np.testing.assert_allclose(op.forward(x), theirs.numpy(), rtol=0, atol=1e-15)


def test_values_and_gradients_are_those_of_the_paper_s_formula() -> None:
    """φ(q_i) Σ φ(k_j)ᵀ v_j / φ(q_i)·Σ φ(k_j) over j ≤ i, in torch; heads 0 and 1 read key head 0."""
    q, k, v = (torch.tensor(x, requires_grad=True) for x in drawn(0))
    features = [torch.nn.functional.elu(x) + 1 for x in (q, k)]
    out = torch.zeros(2, 4, 5, 3, dtype=torch.float64)
    for b in range(2):
        for h in range(4):
            for i in range(5):
                phi_q, phi_k = features[0][b, h, i], features[1][b, h // 2, : i + 1]
                state = phi_k.T @ v[b, h // 2, : i + 1]
                out[b, h, i] = phi_q @ state / (phi_q @ phi_k.sum(0))
    config = config_of("linear_elu", n_head=4, n_kv_head=2, d_head=3)
    tape = heads(config, *(x.detach().numpy() for x in (q, k, v)))
    np.testing.assert_allclose(tape["attn.z"], out.detach().numpy(), rtol=1e-12)
    (out * torch.tensor(tape["weight"])).sum().backward()
    for name, x in (("q", q), ("k", k), ("v", v)):
        assert x.grad is not None
        np.testing.assert_allclose(tape[f"d.{name}"], x.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_without_a_mask_every_key_is_in_the_sum() -> None:
    q, k, v = drawn(1, h=1, k=1, b=1)
    tape = heads(config_of("linear_elu", mask="none", d_head=3), q, k, v, allowed=None)
    phi_q, phi_k = (torch.nn.functional.elu(torch.tensor(x[0, 0])) + 1 for x in (q, k))
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

"""Linear attention with max(0, x): two tokens by hand, and the row that finds nothing."""

import numpy as np
import torch

from tests.parts.attentions.heads import config_of, drawn, heads


def test_two_tokens_by_hand() -> None:
    """φ(q) = (2, 0), (1, 3) and φ(k) = (1, 0), (1, 1): the second query finds 1 and 4."""
    config = config_of("linear_relu", d_head=2)
    q, k = [[[[2.0, -1.0], [1.0, 3.0]]]], [[[[1.0, -5.0], [1.0, 1.0]]]]
    tape = heads(config, q, k, [[[[10.0, 0.0], [0.0, 5.0]]]])
    np.testing.assert_allclose(tape["attn.kernel"][0, 0], [[2, 0], [1, 4]], rtol=1e-15)
    np.testing.assert_allclose(tape["attn.pattern"][0, 0], [[1, 0], [0.2, 0.8]], rtol=1e-15)
    np.testing.assert_allclose(tape["attn.z"][0, 0], [[10, 0], [2, 4]], rtol=1e-15)


def test_a_query_that_finds_nothing_takes_nothing_and_learns_nothing() -> None:
    config = config_of("linear_relu", d_head=2)
    q, k = [[[[-2.0, -1.0], [1.0, -3.0]]]], [[[[-1.0, 2.0], [-1.0, 1.0]]]]
    tape = heads(config, q, k, [[[[10.0, 0.0], [0.0, 5.0]]]])
    assert not tape["attn.kernel"].any()
    for name in ("attn.pattern", "attn.z", "d.q", "d.k", "d.v"):
        assert not tape[name].any(), name


def test_values_and_gradients_equal_an_independent_calculation_in_torch() -> None:
    arrays = drawn(0)
    for x in arrays[:2]:
        x[..., 0] = 0.5 + np.abs(x[..., 0])  # so that every query finds something
    q, k, v = (torch.tensor(x, requires_grad=True) for x in arrays)
    kernel = torch.einsum("bktd,bksd->bkts", q.relu(), k.relu().repeat_interleave(2, 1)).tril()
    z = kernel / kernel.sum(-1, keepdim=True) @ v.repeat_interleave(2, 1)
    config = config_of("linear_relu", n_head=4, n_kv_head=2, d_head=3)
    tape = heads(config, *(x.detach().numpy() for x in (q, k, v)))
    np.testing.assert_allclose(tape["attn.z"], z.detach().numpy(), rtol=1e-12)
    (z * torch.tensor(tape["weight"])).sum().backward()
    for name, x in (("q", q), ("k", k), ("v", v)):
        assert x.grad is not None
        np.testing.assert_allclose(tape[f"d.{name}"], x.grad.numpy(), rtol=1e-9, atol=1e-12)

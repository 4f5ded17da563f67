"""Tiled attention against PyTorch's own, and what it refuses."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pellucid.base.errors import ConfigError
from tests.parts.attentions.heads import config_of, drawn, heads


@pytest.mark.parametrize("tile", [1, 2, 4, 8])
def test_values_and_gradients_are_those_of_pytorch(tile: int) -> None:
    arrays = drawn(6, t=7, s=7, d=4)
    q, k, v = (torch.tensor(x, requires_grad=True) for x in arrays)
    z = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    config = config_of({"kind": "tiled", "tile": tile}, n_head=4, n_kv_head=2, d_head=4)
    tape = heads(config, *arrays)
    np.testing.assert_allclose(tape["attn.z"], z.detach().numpy(), rtol=0, atol=1e-13)
    (z * torch.tensor(tape["weight"])).sum().backward()
    for name, x in (("q", q), ("k", k), ("v", v)):
        assert x.grad is not None
        np.testing.assert_allclose(tape[f"d.{name}"], x.grad.numpy(), rtol=0, atol=1e-12)


def test_a_tile_of_no_keys_is_refused() -> None:
    with pytest.raises(ConfigError, match="from 1 key to 2,147,483,648"):
        config_of({"kind": "tiled", "tile": 0})


def test_dropout_of_a_pattern_that_is_never_whole_is_refused() -> None:
    with pytest.raises(ConfigError, match="tiled"):
        config_of({"kind": "tiled", "tile": 2}, dropout="bernoulli")
    config_of({"kind": "tiled", "tile": 2}, dropout={"kind": "bernoulli", "pattern": 0.0})


def test_the_size_of_a_tile_is_required() -> None:
    with pytest.raises(ConfigError, match="tile = 128"):
        config_of("tiled")

"""A recorded step offers values under the names, and in the shapes, of the module's fused path."""

from typing import Any

import pytest
import torch

from pellucid.engine.gpu.decoder import GpuDecoder
from pellucid.engine.taps import record
from tests.engine.gpu.models import make_ids, make_module, make_rows

CHOICES: dict[str, dict[str, Any]] = {
    "rope": {"n_layer": 2},
    "learned": {"positions": "learned", "norm": "layer_norm", "mlp": "gelu_tanh", "biases": ["qkv", "mlp"]},
    "ring": {"mask": {"kind": "window", "size": 5}},
    "normed keys": {"qk_norm": "rms_norm", "positions": "none"},
}


@torch.no_grad()
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("choice", CHOICES)
def test_recorded_values_are_those_of_the_module(choice: str, count: int, device: torch.device) -> None:
    decoder = GpuDecoder(make_module(device, **CHOICES[choice]), 2)
    seen = []
    for one in (decoder.module, decoder):
        rows = make_rows(decoder, count)
        for place, row in enumerate(rows):
            decoder.module.forward_packed([(row, make_ids(7, seed=place))], [])
        with record(fused=True, model=decoder.module) as values:
            logits = one.forward_packed([(row, [3]) for row in rows], range(count))
        seen.append(dict(values))
        assert torch.equal(values["logits"].flatten(0, -2), logits)
    theirs, own = seen
    assert {"logits", "blocks.0.resid_mid", "blocks.0.attn.q", "blocks.0.attn.z", "blocks.0.mlp.hidden"} <= {
        *own
    }
    assert {*own} <= {*theirs}
    for name, value in own.items():
        assert value.shape == theirs[name].shape, name
        torch.testing.assert_close(value.float(), theirs[name].float(), rtol=1e-4, atol=1e-5, msg=name)

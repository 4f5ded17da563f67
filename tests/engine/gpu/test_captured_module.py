"""A recorded step of the module has the module's logits; without a GPU nothing is recorded, and it runs."""

import pytest
import torch

from pellucid.engine.cache import Cache
from pellucid.engine.gpu.captured_module import RecordedModule
from pellucid.engine.taps import record
from pellucid.engine.transformer import Transformer
from tests.engine.gpu.models import make_module

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CHOICES = {"sandwich norms": {"placement": "sandwich"}, "t5": {"positions": "t5"}, "int8 cache": {}}


def read(decoder: Transformer | RecordedModule, dtype: torch.dtype) -> list[torch.Tensor]:
    """Returns the logits of steps in which some rows read a token, across a change of the visible length."""
    cache = Cache(decoder.config, 3, 32, dtype=dtype, device=DEVICE, stride=8)
    found = []
    for step in range(12):
        ids = torch.tensor([[step], [step + 1], [7]], device=DEVICE)
        lengths = [1, 1, int(step % 2 == 0)]
        found.append(decoder.forward_cached(ids, cache, lengths)[: 2 + lengths[2]])
    assert cache.host_lengths.tolist() == cache.lengths.tolist() == [12, 12, 6]
    return found


@pytest.mark.parametrize("choice", CHOICES)
@torch.inference_mode()
def test_recorded_steps_equal_the_modules(choice: str) -> None:
    module = make_module(DEVICE, **CHOICES[choice])
    dtype = torch.int8 if choice == "int8 cache" else torch.float32
    for own, expected in zip(read(RecordedModule(module), dtype), read(module, dtype), strict=True):
        torch.testing.assert_close(own, expected)


@pytest.mark.parametrize("positions", ["rope", "sinusoidal", "t5"])
@torch.inference_mode()
def test_steps_recorded_before_tables_grew_have_the_same_logits(
    positions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second text is decoded by the recordings of the first one, whose tables the module has replaced."""
    whole = make_module(DEVICE, positions=positions)
    whole.cover(32)
    monkeypatch.setattr("pellucid.engine.positions.FIRST_POSITIONS", 4)
    decoder = RecordedModule(make_module(DEVICE, positions=positions))
    caches = [Cache(whole.config, 1, 32, device=DEVICE, stride=8) for _ in range(2)]
    for _ in range(2):
        for step in range(20):
            ids = torch.tensor([[step]], device=DEVICE)
            own, expected = (
                one.forward_cached(ids, cache, [1])
                for one, cache in zip((decoder, whole), caches, strict=True)
            )
            torch.testing.assert_close(own, expected)
        for cache in caches:
            cache.crop(0)


@torch.inference_mode()
def test_a_watched_step_is_the_modules_own() -> None:
    module = make_module(DEVICE)
    cache = Cache(module.config, 1, 8, device=DEVICE)
    with record(fused=True, model=module) as seen:
        RecordedModule(module).forward_cached(torch.tensor([[3]], device=DEVICE), cache, [1])
    assert "blocks.0.attn.z" in seen

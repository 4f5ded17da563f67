"""Small models for the kernels, and steps of them beside the module's own."""

from collections.abc import Sequence
from typing import Any

import torch

from pellucid.base.quantized import Scheme, quantize
from pellucid.config import ModelConfig
from pellucid.engine.cache import Cache
from pellucid.engine.gpu.decoder import GpuDecoder
from pellucid.engine.transformer import Transformer

SIZES = {
    "vocab_size": 53,
    "context_length": 32,
    "n_layer": 1,
    "n_head": 4,
    "n_kv_head": 2,
    "d_model": 24,
    "d_head": 8,
    "d_ff": 40,
}
"""None fills a tile; two query heads share a key head."""


def make_module(
    device: torch.device, scheme: Scheme | None = None, dtype: torch.dtype = torch.float32, **choices: Any
) -> Transformer:
    """Returns a model with weights so large that attention and activations are far from linear."""
    config = ModelConfig.from_dict(SIZES | choices)
    generator = torch.Generator().manual_seed(0)
    weights: dict[str, Any] = {
        name: torch.randn(value.shape, generator=generator).mul(0.3).numpy()
        for name, value in Transformer(config).named_parameters()
    }
    if scheme is not None:
        weights = {
            name: quantize(value, scheme) if value.ndim == 2 and name != "positions.weight" else value
            for name, value in weights.items()
        }
    return Transformer.from_weights(config, weights, device=device, dtype=dtype)


def make_ids(count: int, vocab_size: int = SIZES["vocab_size"], seed: int = 0) -> list[int]:
    drawn = torch.randint(vocab_size, (count,), generator=torch.Generator().manual_seed(seed))
    return [int(id) for id in drawn]


def make_rows(decoder: GpuDecoder | Transformer, count: int, **options: Any) -> list[Cache]:
    """Returns rows of one cache, the last first; row 0 is nobody's."""
    options = {"capacity": decoder.config.context_length, "dtype": torch.float32} | options
    cache = Cache(decoder.config, count + 1, device=decoder.device, **options)
    return [cache.row(place) for place in range(count, 0, -1)]


@torch.no_grad()
def measure_error(decoder: GpuDecoder, lengths: Sequence[int], steps: int = 1, **options: Any) -> float:
    """Reads texts of these lengths by the module, then one token after the other of each by both, and returns
    the largest difference of a logit or of a cached number, relative to the largest number."""
    module = decoder.module
    pairs = [(one, make_rows(one, len(lengths), **options)) for one in (decoder, module)]
    for _, rows in pairs:
        for place, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            if length:
                module.forward_packed([(row, make_ids(length, seed=place))], [])
    worst, ids = 0.0, make_ids(len(lengths), seed=99)
    for _ in range(steps):
        fed = [[(row, [id]) for row, id in zip(rows, ids, strict=True)] for _, rows in pairs]
        own, expected = (
            one.forward_packed(some, range(len(ids))) for (one, _), some in zip(pairs, fed, strict=True)
        )
        worst = max(worst, compare(own, expected))
        ids = expected.argmax(-1).tolist()
    return max(worst, compare_caches(*(rows[0].whole for _, rows in pairs)))


def compare_caches(own: Cache, expected: Cache) -> float:
    """Returns the largest difference of a cached number of texts that must have the same lengths."""
    assert own.host_lengths.tolist() == expected.host_lengths.tolist()
    held = slice(None, -1 if own.ring else None)  # a ring's last slot takes what is not kept
    return max(
        compare(one[:, :, held], other[:, :, held])
        for layers in zip(own.layers, expected.layers, strict=True)
        for one, other in zip(*(layer.buffers for layer in layers), strict=True)
    )


def compare(own: torch.Tensor, expected: torch.Tensor) -> float:
    """Returns the largest difference, relative to the largest number."""
    own, expected = own.double(), expected.double()
    return float((own - expected).abs().max() / expected.abs().max())

"""The memory of a step, whose addresses recorded launches hold, and the caches that a step can read."""

import torch
from torch import Tensor

from pellucid.config import ModelConfig
from pellucid.engine.cache import Cache
from pellucid.engine.gpu.tiles import LOGITS_OF_BLOCK, count_splits
from pellucid.engine.layer_cache import KeyValueCache

RING = 64
"""Steps whose tokens are kept until the host has read them."""
PLANES = 3
"""bfloat16 numbers whose sum has all the bits of a float32 number."""

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
"""The types of keys and values that kernels read."""


class Buffers:
    """The memory of a step, for up to `most` texts: what the host writes, and what kernels hand on."""

    def __init__(self, config: ModelConfig, most: int, device: torch.device, planes: int) -> None:
        def make(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        def make_planes(width: int) -> Tensor:
            dtype = torch.bfloat16 if planes > 1 else torch.float32
            return make(planes, most, width, dtype=dtype)

        heads, keys = config.n_head * config.d_head, config.n_kv_head * config.d_head
        blocks = -(-config.vocab_size // LOGITS_OF_BLOCK)
        self.most = most
        self.state = make(5, most, dtype=torch.int32)
        """What the host writes before a step; the rows are the next five."""
        self.tokens, self.positions, self.slots, self.left, self.steps = self.state
        self.chosen = make(most, dtype=torch.int32)
        self.drawn = torch.zeros(RING, most, dtype=torch.int32, pin_memory=device.type == "cuda")
        """The tokens of the last steps, in host memory that the device writes to."""
        self.x, self.qkv = make(most, config.d_model), make(most, heads + 2 * keys)
        self.z, self.hidden = make(most, heads), make(most, config.d_ff)
        self.z_planes, self.hidden_planes = make_planes(heads), make_planes(config.d_ff)
        self.normed = make_planes(config.d_model)
        parts = most * config.n_head * count_splits(config.context_length)
        self.partial, self.highest, self.total = make(parts, config.d_head), make(parts), make(parts)
        self.logits = make(most, config.vocab_size)
        self.best, self.best_id = make(most, blocks), make(most, blocks, dtype=torch.int32)


def is_readable(cache: Cache) -> bool:
    """Returns whether kernels can read a cache: keys and values in floats, all of them or a ring of the
    last."""
    layer = cache.layers[0]
    is_ring = cache.ring is None or cache.ring.first == 0
    return type(layer) is KeyValueCache and layer.buffers[0].dtype in FLOATS and is_ring


def find_slot(cache: Cache) -> int:
    """Returns which row of the whole cache this one is."""
    buffer = cache.layers[0].buffers[0]
    return int(buffer.storage_offset() // buffer.stride(0))

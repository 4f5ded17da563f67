"""Caches that the kernels read and write, and where the rows of one lie."""

import torch

from pellucid.engine.cache import Cache
from pellucid.engine.layer_cache import KeyValueCache

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


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

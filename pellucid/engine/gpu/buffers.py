"""The memory of a step, which stays where it is: recorded launches hold its addresses."""

import torch
from torch import Tensor

from pellucid.config import ModelConfig
from pellucid.engine.gpu.tiles import LOGITS_OF_BLOCK, count_splits

RING = 64
"""Steps whose tokens are kept until the host has read them."""
PLANES = 3
"""bfloat16 numbers whose sum has all the bits of a float32 number."""


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

"""A training step's speed on a CPU, beside a nanoGPT-style step in plain PyTorch, and beside its limit.

python -m benchmarks.training [--quick] [--bfloat16]

Both train the same model (learned positions, LayerNorm, GELU, tied, no biases, no dropout) with AdamW and
clipping. They take turns, and the best of several short runs counts, so that a busy machine slows both.
"""

import contextlib
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SHAPES = {
    "L4 C128 T64 B12 V65": ((4, 4, 128, 64, 65), 12, (1.56, 1.19)),
    "L6 C192 T256 B16 V5000": ((6, 6, 192, 256, 5000), 16, (1.44, 1.23)),
}
"""Layers, heads, channels, positions and vocabulary; sequences in a batch; the ratios asked, eager and
compiled."""
LR, BETAS, DECAY, CLIP = 1e-3, (0.9, 0.99), 0.1, 1.0
Step = Callable[[Tensor, Tensor], Tensor]


class Peer(nn.Module):
    """GPT-2 as nanoGPT writes it."""

    def __init__(self, layers: int, heads: int, width: int, length: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(PeerBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)
        self.tokens.weight = self.head.weight

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class PeerBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width, bias=False) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, count, width = x.shape
        parts = self.qkv(self.norms[0](x)).split(width, 2)
        q, k, v = (part.view(batch, count, self.heads, -1).transpose(1, 2) for part in parts)
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(z.transpose(1, 2).contiguous().view(batch, count, width))
        y: Tensor = x + self.down(F.gelu(self.up(self.norms[1](x))))
        return y


def groups(model: nn.Module) -> list[dict[str, object]]:
    """Matrices decay, the rest does not."""
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": DECAY},
        {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
    ]


def precision(bfloat16: bool) -> contextlib.AbstractContextManager[object]:
    return torch.autocast("cpu", torch.bfloat16) if bfloat16 else contextlib.nullcontext()


def peers_step(shape: tuple[int, ...], compiled: bool, bfloat16: bool) -> Step:
    """nanoGPT's loop on a CPU: AdamW as PyTorch chooses, clipping, the loss read at every step."""
    torch.manual_seed(0)
    model: nn.Module = Peer(*shape)
    optimizer = torch.optim.AdamW(groups(model), lr=LR, betas=BETAS)
    forward = torch.compile(model) if compiled else model

    def step(ids: Tensor, targets: Tensor) -> Tensor:
        with precision(bfloat16):
            value: Tensor = forward(ids, targets)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value.item()
        return value

    return step

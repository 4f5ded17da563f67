"""LoRA: a frozen weight W and a trained update of low rank, W' = W + s B A.

Hu et al. 2021, arXiv:2106.09685. The adapter of blocks.3.attn.q_proj is blocks.3.attn.q_proj.lora_a, A
(rank, in), and blocks.3.attn.q_proj.lora_b, B (out, rank).
"""

from typing import Any

A, B = ".lora_a", ".lora_b"
"""The ends of an adapter's names."""


def merge(weight: Any, a: Any, b: Any, scale: Any) -> Any:
    """Returns W + s B A, of NumPy arrays or of tensors, in their own types."""
    return weight + scale * (b @ a)

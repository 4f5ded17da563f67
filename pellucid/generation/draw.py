"""Samples one token from the logits: the largest, or a draw from softmax(ℓ / temperature)."""

import math

import torch
from torch import Tensor

from pellucid.errors import UsageError


def draw(logits: Tensor, temperature: float, generator: torch.Generator) -> int:
    """Returns the first token v with p_0 + … + p_v > u, where p = softmax(ℓ / temperature) and u is uniform
    from the generator; in float64 on the CPU, so that logits and seed determine the token everywhere."""
    largest, likeliest = logits.max(-1)
    top = float(largest)
    if not math.isfinite(top):  # the maximum of a NaN and anything is NaN
        raise UsageError("the model's logits are NaN or Inf: try another dtype, or `pellucid verify`.")
    if temperature == 0:
        return int(likeliest)
    probabilities = torch.softmax((logits.double().cpu() - top) / temperature, -1)
    reached = probabilities.cumsum(-1)
    u = torch.rand((), dtype=torch.float64, generator=generator) * reached[-1]
    return int(torch.searchsorted(reached, u, right=True).clamp_max(len(reached) - 1))

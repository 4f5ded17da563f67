"""One token from the scores: the largest, or a draw from the probabilities at a temperature."""

import math

import torch
from torch import Tensor

from pellucid.errors import UsageError


def draw(logits: Tensor, temperature: float, dice: torch.Generator) -> int:
    """The first token v with p_0 + … + p_v > u, where p = softmax(ℓ / temperature) and u is one number of the
    dice; in float64 on the CPU, so that the same scores and dice give the same token everywhere."""
    largest, likeliest = logits.max(-1)
    top = float(largest)
    if not math.isfinite(top):  # a NaN anywhere is also the largest
        raise UsageError("the model's scores are not numbers: try another dtype, or `pellucid verify`.")
    if temperature == 0:
        return int(likeliest)
    probabilities = torch.softmax((logits.double().cpu() - top) / temperature, -1)
    reached = probabilities.cumsum(-1)
    u = torch.rand((), dtype=torch.float64, generator=dice) * reached[-1]
    return int(torch.searchsorted(reached, u, right=True).clamp_max(len(reached) - 1))

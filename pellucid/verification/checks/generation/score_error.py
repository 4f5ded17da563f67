"""The nats by which a log-probability may be off: what an uncached run's own sums cost, and not more than a
part of the largest logit, so that no fault of the run that is judged widens what it is allowed."""

import math

import numpy as np
import torch

from pellucid.reference.op import Array

TIMES = 16.0
"""The multiple of the error of an uncached run in the same type by which a log-probability may be off."""
FLOORS = {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 1e-1}
"""Nats that are always allowed, where the uncached run happens to be exact."""
CEILINGS = {torch.float64: 1e-8, torch.float32: 1e-3}
"""Nats that are allowed at most, as a part of the largest logit: 0.01 nats in float32 where it is 10. Healthy
random models in float32 are off by up to 1e-5 of it, those with weights × 10 by 1e-4; a run in 16 bits may be
off by all of it, and is bounded by the same code's run in float32."""
ROUNDED = 2e-2
"""The same where a decoder in float32 rounds keys and values to 16 bits: it is off by up to 2e-3 of it."""
LEAST_LOGIT = 10.0
"""The largest logit is taken to be this at least."""


def limit_error(
    dtype: torch.dtype, error: float, largest: float, cache_dtype: torch.dtype | None = None
) -> float:
    """Returns the nats by which a log-probability may be off in a type: 16 times the error of an uncached
    run, which says what this model's sums cost, and not more than `CEILINGS` of the largest logit."""
    part = CEILINGS.get(dtype, math.inf)
    if cache_dtype not in (None, dtype) and part < ROUNDED:
        part = ROUNDED
    return max(FLOORS[dtype], min(TIMES * error, part * max(largest, LEAST_LOGIT)))


def log_softmax(logits: Array) -> Array:
    """Returns the log-probabilities of logits [… V]."""
    shifted = logits - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))

"""The differentiable operations of the specification: what a `Tape` can compute and give gradients of.

>>> from pellucid import Tape, ops
>>> tape = Tape()
>>> square = tape("square", ops.power, tape.parameter("x", 3.0), exponent=2)
>>> tape.backward(square)
>>> float(tape["d.x"])
6.0
"""

from pellucid.reference.ops.activations import (
    gelu,
    gelu_tanh,
    relu,
    relu_squared,
    sigmoid,
    silu,
    soft_cap,
    tanh,
)
from pellucid.reference.ops.arithmetic import add, lerp, power, scaled_sum, subtract
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.features import elu_plus_one, random_features
from pellucid.reference.ops.indexing import concat, narrow, put, take
from pellucid.reference.ops.losses import cross_entropy, mean_squared_error, neg_log_probs
from pellucid.reference.ops.masks import mask
from pellucid.reference.ops.normalization import l1_normalize, rstd, safe_divide
from pellucid.reference.ops.online_softmax import tiled_output
from pellucid.reference.ops.quantization import dequantize
from pellucid.reference.ops.rotate import rotate
from pellucid.reference.ops.softmax import logsumexp, softmax

__all__ = [
    "add",
    "concat",
    "cross_entropy",
    "dequantize",
    "einsum",
    "elu_plus_one",
    "gelu",
    "gelu_tanh",
    "l1_normalize",
    "lerp",
    "logsumexp",
    "mask",
    "mean_squared_error",
    "narrow",
    "neg_log_probs",
    "power",
    "put",
    "random_features",
    "relu",
    "relu_squared",
    "rotate",
    "rstd",
    "safe_divide",
    "scaled_sum",
    "sigmoid",
    "silu",
    "soft_cap",
    "softmax",
    "subtract",
    "take",
    "tanh",
    "tiled_output",
]

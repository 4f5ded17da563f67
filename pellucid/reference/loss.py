"""The loss: cross-entropy over the counted targets, with class weights, label smoothing and z-loss.

Without settings it is the mean of nll = −ln p(target). Counted are the targets other than IGNORE_INDEX. The
settings, each alone or together:

    class_weights w [V]   w_y nll, and Σ w_y in place of the number of targets
    smoothing α           (1 − α) w_y nll + α · mean over all V tokens of w_v (−ln p_v)
    z                     plus z · mean of lse² over the counted targets, without class weights

Weights and means are those of PyTorch's cross_entropy; label smoothing is from Szegedy et al. 2015,
arXiv:1512.00567, section 7; the z-loss is from Chowdhery et al. 2022, arXiv:2204.02311, with z = 1e-4: it
keeps the log-sum-exp of the logits near 0, which the probabilities do not depend on.
"""

import math
from typing import Any

import numpy as np

from pellucid.base.errors import TapeError
from pellucid.base.names import IGNORE_INDEX
from pellucid.reference.op import Array, Ref
from pellucid.reference.ops.arithmetic import add, lerp, power
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.losses import cross_entropy, neg_log_probs
from pellucid.reference.ops.softmax import logsumexp
from pellucid.reference.tape import Tape


def loss(
    tape: Tape,
    logits: Ref,
    targets: Any,
    *,
    smoothing: float = 0.0,
    z: float = 0.0,
    class_weights: Array | None = None,
) -> Ref:
    """Returns the loss [] over the targets [B T] other than IGNORE_INDEX; 0 where their weights sum to 0."""
    targets = np.asarray(targets)
    if targets.shape != logits.shape[:-1]:
        raise TapeError(f"targets {targets.shape} must have the shape {logits.shape[:-1]} of the positions.")
    if not 0 <= smoothing <= 1:
        raise TapeError(f"smoothing must be from 0 to 1; got {smoothing:g}.")
    if not 0 <= z < math.inf:
        raise TapeError(f"z must be finite and at least 0; got {z:g}.")
    counted = targets != IGNORE_INDEX
    count = max(int(counted.sum()), 1)
    lse = tape("lse", logsumexp, logits)
    nll, total = tape("nll", cross_entropy, logits, lse, tape.constant("targets", targets)), float(count)
    if class_weights is not None:
        class_weights = _check_class_weights(class_weights, logits.shape[-1])
        weight = np.where(counted, class_weights[np.where(counted, targets, 0)], 0.0)
        nll = tape("weighted_nll", einsum, nll, tape.constant("target_weights", weight), spec="bt,bt->bt")
        total = float(weight.sum())
    mask = [tape.constant("counted", counted.astype(float))] if smoothing or z else []
    if smoothing:
        nll = tape("smoothed", lerp, nll, _uniform_nll(tape, logits, lse, class_weights), share=smoothing)
    mean = {"spec": "bt,bt->" if smoothing else "bt->", "scale": 1 / total if total else 0.0}
    terms = [nll, *mask] if smoothing else [nll]
    if not z:
        return tape("loss", einsum, *terms, **mean)
    entropy = tape("cross_entropy", einsum, *terms, **mean)
    squares = tape("z_penalty", power, lse, exponent=2)
    return tape("loss", add, entropy, tape("z_loss", einsum, squares, *mask, spec="bt,bt->", scale=z / count))


def _uniform_nll(tape: Tape, logits: Ref, lse: Ref, class_weights: Array | None) -> Ref:
    """Returns the cross-entropy with the uniform distribution [B T]: the mean over v of w_v (−ln p_v)."""
    all_tokens, scale = tape("neg_log_probs", neg_log_probs, logits, lse), 1 / logits.shape[-1]
    if class_weights is None:
        return tape("uniform_nll", einsum, all_tokens, spec="btv->bt", scale=scale)
    weights = tape.constant("class_weights", class_weights)
    return tape("uniform_nll", einsum, all_tokens, weights, spec="btv,v->bt", scale=scale)


def _check_class_weights(class_weights: Any, vocabulary: int) -> Array:
    weights = np.asarray(class_weights, dtype=float)
    if weights.shape != (vocabulary,) or not np.isfinite(weights).all() or (weights < 0).any():
        raise TapeError(
            f"class_weights must be {vocabulary} finite numbers of at least 0, one for each token; "
            f"got the shape {weights.shape}" + (f", from {weights.min():g}." if weights.size else ".")
        )
    return weights

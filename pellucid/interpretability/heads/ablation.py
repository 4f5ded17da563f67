"""Ablation of heads: how much the loss grows without what a head adds to the residual stream.

    zero    blocks.L.attn.head_out of head h := 0
    mean    blocks.L.attn.head_out of head h := its mean over all positions of the texts

head_out = z W_O, each head with its own rows of W_O, is linear in z, so that z is replaced by 0 or by its
mean: the same ablation, without computing head_out for every head.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pellucid.base.dtypes import Array
from pellucid.base.errors import UsageError
from pellucid.interpretability.patching.sites import Site
from pellucid.interpretability.patching.variants import Progress, Replacement, run_variants
from pellucid.interpretability.runner import Runner
from pellucid.reference.ops.losses import cross_entropy
from pellucid.reference.ops.softmax import logsumexp


@dataclass(frozen=True)
class HeadAblation:
    """The loss of the model in nats per token over `n_tokens` targets, and how much it grows, [L H] each,
    with a head's output set to 0 or to its mean."""

    loss: float
    zero: Array
    mean: Array
    n_tokens: int
    n_texts: int


def compute_nll(logits: Array, ids: Sequence[int]) -> Array:
    """Returns the sum over the targets ids[1:] of −ln p, for each row of logits [B T V], [B] in nats."""
    logits = logits[:, :-1]
    targets = np.broadcast_to(np.asarray(ids)[1:], logits.shape[:2])
    nll: Array = cross_entropy.forward(logits, logsumexp.forward(logits), targets).sum(-1)
    return nll


def ablate_heads(
    runner: Runner, texts: Sequence[Sequence[int]], progress: Progress = lambda done, total: None
) -> HeadAblation:
    """Ablates each head alone, on all texts; a text of one token has no target."""
    texts = [ids for ids in texts if len(ids) > 1]
    if not texts:
        raise UsageError(
            "the loss of an ablated model needs a text of at least two tokens: give a prompt, or texts."
        )
    config, n_tokens = runner.config, sum(len(ids) - 1 for ids in texts)
    sites = [
        Site(f"blocks.{layer}.attn.z", (("h", head),))
        for layer in range(config.n_layer)
        for head in range(config.n_head)
    ]
    means = _compute_means(runner, texts)
    variants = [
        [],
        *([Replacement(site, 0.0)] for site in sites),
        *([Replacement(site, means[site.name][site.at[0][1]])] for site in sites),
    ]
    total = np.zeros(len(variants))
    for i, ids in enumerate(texts):
        total += run_variants(
            runner,
            ids,
            variants,
            "logits",
            lambda logits, ids=ids: compute_nll(logits, ids),  # type: ignore[misc]
            progress=lambda done, of, i=i: progress(i * of + done, len(texts) * of),  # type: ignore[misc]
        )
    loss, *losses = (total / n_tokens).tolist()
    zero, mean = np.reshape(losses, (2, config.n_layer, config.n_head)) - loss
    return HeadAblation(loss, zero, mean, n_tokens, len(texts))


def _compute_means(runner: Runner, texts: Sequence[Sequence[int]]) -> dict[str, Array]:
    """Returns the mean of z over all positions of the texts, [H D] for each layer."""
    sums: dict[str, Array] = {}
    for ids in texts:
        for name, z in runner.run(list(ids), ["blocks.*.attn.z"]).items():
            sums[name] = sums.get(name, 0.0) + z[0].sum(1)
    return {name: total / sum(map(len, texts)) for name, total in sums.items()}

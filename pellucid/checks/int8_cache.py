"""Checks what the int8 cache costs, as KL divergence in nats."""

import torch

from pellucid.checks.check import Check, Subject
from pellucid.checks.equivalences import NO_CACHE
from pellucid.judge.verdict import Finding, Verdict
from pellucid.model.cache import Cache
from pellucid.model.layer_cache import SlotCache

MEAN, WORST = 0.05, 0.5
"""Nats. A real model is far within; random weights make flat distributions, which move more easily."""


def measure_divergence(subject: Subject) -> Finding:
    """Measures KL(full ‖ int8) of the next token at every position that reads the cache."""
    half = max(1, len(subject.all_ids) // 2)
    if subject.config.mask.bidirectional_prefix > half:
        return Finding(Verdict.SKIPPED, NO_CACHE)
    if not isinstance(Cache(subject.config, 1, 1).layers[0], SlotCache):
        return Finding(Verdict.SKIPPED, "its cache is a running sum and holds no keys")
    module = subject.module(torch.float32)
    ids = torch.tensor([subject.all_ids], device=module.device)
    found, caches = [], list[Cache]()
    with torch.no_grad():
        for dtype in (torch.float32, torch.int8):
            cache = Cache(module.config, 1, ids.shape[1], dtype=dtype, device=module.device)
            logits = [
                module.forward_cached(part, cache) for part in (ids[:, :half], ids[:, half:]) if part.numel()
            ]
            found.append(torch.log_softmax(logits[-1].double(), -1))
            caches.append(cache)
    if (off := _largest_step(*caches)) > 0.5:
        message = (
            f"a cached key or value is off by {off:.2f} quantization steps; rounding explains 0.5 at most"
        )
        return Finding(Verdict.BUG, f"{off:.2f} steps", "blocks.0.attn.k_all", message)
    full, int8 = found
    kl = (full.exp() * (full - int8)).sum(-1)
    mean, worst = float(kl.mean()), float(kl.max())
    measured = f"{mean:.1e} nats, {worst:.1e} at worst"
    if not (mean <= MEAN and worst <= WORST):  # NaN fails as well
        at = f"position {half + int(kl.argmax())}"
        return Finding(
            Verdict.BUG,
            measured,
            at,
            "the int8 cache changes this model's predictions. Use a wider cache type.",
        )
    return Finding(Verdict.NOISE, measured)


def _largest_step(full: Cache, int8: Cache) -> float:
    """Returns the largest error in the first layer, in steps of its scale; both caches had the same input."""
    layers = (cache.layers[0] for cache in (full, int8))
    wide, narrow = (
        layer.read(full.visible_length, torch.float64) for layer in layers if isinstance(layer, SlotCache)
    )
    scales = int8.layers[0].buffers[2:]
    return max(
        float(((a - b).abs() / scale[:, :, : int8.visible_length].double().clamp_min(1e-30)).max())
        * (1 - 1e-5)
        for a, b, scale in zip(wide, narrow, scales, strict=True)
    )


CHECKS = (
    Check(
        "int8 cache",
        "Keys and values in int8 hardly change the distribution of the next token.",
        f"KL {MEAN:g} on average, {WORST:g} at worst",
        measure_divergence,
    ),
)

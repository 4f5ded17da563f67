"""The int8 cache: what it costs, in nats."""

import torch

from pellucid.checks.equivalences import NO_CACHE
from pellucid.checks.finding import Check, Finding
from pellucid.checks.subject import Subject
from pellucid.model.cache import Cache

MEAN, WORST = 0.01, 0.1


def divergence(subject: Subject) -> Finding:
    """KL(full ‖ int8) of the next token, at every position that reads the cache."""
    if subject.config.mask.looks_ahead:
        return Finding("skipped", NO_CACHE)
    module = subject.module(torch.float32)
    ids = torch.tensor([subject.all_ids], device=module.device)
    half = max(1, ids.shape[1] // 2)
    found = []
    with torch.no_grad():
        for dtype in (torch.float32, torch.int8):
            cache = Cache(module.config, 1, ids.shape[1], dtype=dtype, device=module.device)
            logits = [module.extend(part, cache) for part in (ids[:, :half], ids[:, half:]) if part.numel()]
            found.append(torch.log_softmax(logits[-1].double(), -1))
    full, int8 = found
    kl = (full.exp() * (full - int8)).sum(-1)
    mean, worst = float(kl.mean()), float(kl.max())
    measured = f"{mean:.1e} nats, {worst:.1e} at worst"
    if not (mean <= MEAN and worst <= WORST):  # not a number is not small
        at = f"position {half + int(kl.argmax())}"
        return Finding("BUG", measured, at, "the int8 cache changes what this model says: use a wider one.")
    return Finding("noise", measured)


CHECKS = (
    Check(
        "int8 cache",
        "keys and values in 8 bits hardly change the next token",
        f"KL {MEAN:g} on average, {WORST:g} at worst",
        divergence,
    ),
)

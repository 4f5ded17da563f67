"""Checks that two ways give the same values in float64: with a cache or without, in a batch or alone,
padded or not, in one chunk or in several."""

from collections.abc import Iterable, Mapping

import torch

from pellucid.checks.check import Check, Subject, compare_values
from pellucid.judge.mismatch import CACHED_AGAINST_FULL
from pellucid.judge.verdict import Finding, Verdict
from pellucid.model.cache import Cache
from pellucid.model.taps import record
from pellucid.model.transformer import Transformer
from pellucid.names import describe
from pellucid.reference.op import Array

STEPS = 4
"""How many tokens are decoded one by one."""
NO_CACHE = "its mask is not causal, so it cannot have a cache"


def _values(module: Transformer, ids: list[list[int]], **more: torch.Tensor) -> dict[str, Array]:
    with torch.no_grad(), record() as seen:
        module(torch.tensor(ids, device=module.device), **more)
    return seen.arrays()


def _run_cached(module: Transformer, ids: list[int], chunks: Iterable[int]) -> dict[str, Array]:
    """Returns the values of the last call, where the ids are read into a cache in chunks of these lengths."""
    cache = Cache(module.config, 1, len(ids), dtype=module.dtype, device=module.device)
    start = 0
    with torch.no_grad(), record() as seen:
        for chunk in chunks:
            module.forward_cached(torch.tensor([ids[start : start + chunk]], device=module.device), cache)
            start += chunk
    return seen.arrays()


def _select_last(
    subject: Subject, cached: Mapping[str, Array], full: Mapping[str, Array]
) -> dict[str, Array]:
    """Returns the part of each full value that the last cached call computes: the end of each axis.

    A ring cache holds its keys in another order; values with that axis are omitted.
    """
    wanted = {}
    is_ring = subject.config.mask.visible_past is not None
    for name, got in cached.items():
        if is_ring and (row := describe(name)) and "s" in row.axes:
            continue
        whole = full.get(name)
        if whole is None and name.endswith(("k_all", "v_all")):
            own = name.removesuffix("_all")
            whole = full.get(f"{own}_rot", full.get(own))
        if whole is not None and whole.ndim == got.ndim:
            wanted[name] = whole[tuple(slice(-size, None) for size in got.shape)]
    return wanted


def measure_cached(subject: Subject) -> Finding:
    if subject.config.mask.bidirectional_prefix >= len(subject.ids):
        return Finding(Verdict.SKIPPED, NO_CACHE)
    module, ids = subject.module(torch.float64), subject.ids
    steps = min(STEPS, len(ids) - int(subject.config.mask.bidirectional_prefix))
    got = _run_cached(module, ids, [*([len(ids) - steps] if len(ids) > steps else []), *[1] * steps])
    wanted = _select_last(subject, got, _values(module, [ids]))
    return compare_values(got, wanted, CACHED_AGAINST_FULL)


def measure_chunked_prefill(subject: Subject) -> Finding:
    prefix = subject.config.mask.bidirectional_prefix
    if prefix >= len(subject.ids):
        return Finding(Verdict.SKIPPED, NO_CACHE)
    module, ids = subject.module(torch.float64), subject.ids
    size, first = max(1, len(ids) // 3), int(prefix)
    rest = len(ids) - first
    chunks = [first] * (first > 0) + [size] * (rest // size) + [rest % size] * (rest % size > 0)
    got = _run_cached(module, ids, chunks)
    return compare_values(got, _select_last(subject, got, _values(module, [ids])), CACHED_AGAINST_FULL)


def measure_batched(subject: Subject) -> Finding:
    module, ids = subject.module(torch.float64), subject.ids
    together = _values(module, [ids[::-1], ids, [ids[0]] * len(ids)])
    alone = _values(module, [ids])
    got = {name: together[name][1:2] for name in alone if _has_rows(name)}
    return compare_values(got, {name: alone[name] for name in got}, CACHED_AGAINST_FULL)


def measure_padded(subject: Subject) -> Finding:
    """Pads on the left and on the right; the tokens keep their positions."""
    module, ids = subject.module(torch.float64), subject.ids
    room = min(5, module.config.context_length - len(ids)) or 1
    ids = ids[: module.config.context_length - room]
    if not ids:
        return Finding(Verdict.SKIPPED, "its context has no room for padding")
    alone = _values(module, [ids])
    rows = [[0] * room + ids, ids + [0] * room]
    real = torch.tensor([[0] * room + [1] * len(ids), [1] * len(ids) + [0] * room], device=module.device)
    places = (real.cumsum(-1) - 1).clamp_min(0)
    found = _values(module, rows, padding=real.bool(), positions=places)
    got, wanted = {}, {}
    for name, value in alone.items():
        if not _has_rows(name) or found[name].ndim != value.ndim:
            continue
        for row, side in enumerate(("left", "right")):
            cut = [slice(row, row + 1)]
            cut += [
                slice(room, None) if side == "left" and size != width else slice(width)
                for size, width in zip(found[name].shape[1:], value.shape[1:], strict=True)
            ]
            got[f"{name} ({side})"], wanted[f"{name} ({side})"] = found[name][tuple(cut)], value
    return compare_values(got, wanted, CACHED_AGAINST_FULL)


def _has_rows(name: str) -> bool:
    row = describe(name)
    return row is not None and row.axes[:1] == ("b",) and name != "mask"


BUDGET = f"{CACHED_AGAINST_FULL:g}"
CHECKS = (
    Check(
        "cached",
        "Decoding with the cache gives the values of one pass over all tokens.",
        BUDGET,
        measure_cached,
    ),
    Check(
        "chunked prefill",
        "Prefill of a prompt in chunks gives the values of one pass over all tokens.",
        BUDGET,
        measure_chunked_prefill,
    ),
    Check(
        "batched",
        "The values of a row do not depend on the other rows of its batch.",
        BUDGET,
        measure_batched,
    ),
    Check("padded", "The values of a row do not depend on padding, left or right.", BUDGET, measure_padded),
)

"""Two ways to the same numbers: with a cache or without, in a batch or alone, padded or plain, in one piece
or in several. All in float64, on every value that both ways name."""

from collections.abc import Iterable, Mapping

import torch

from pellucid.checks.finding import Check, Finding, compared
from pellucid.checks.subject import Subject
from pellucid.judge.mismatch import CACHED_AGAINST_FULL
from pellucid.model.cache import Cache
from pellucid.model.taps import record
from pellucid.model.transformer import Transformer
from pellucid.names import describe
from pellucid.reference.op import Array

STEPS = 4
"""Tokens that are decoded one by one."""
NO_CACHE = "its mask looks ahead, so there is no cache"


def _values(module: Transformer, ids: list[list[int]], **more: torch.Tensor) -> dict[str, Array]:
    with torch.no_grad(), record() as seen:
        module(torch.tensor(ids, device=module.device), **more)
    return seen.arrays()


def _extended(module: Transformer, ids: list[int], chunks: Iterable[int]) -> dict[str, Array]:
    """The values of the last call, when the ids are read into a cache in pieces of these lengths."""
    cache = Cache(module.config, 1, len(ids), dtype=module.dtype, device=module.device)
    start = 0
    with torch.no_grad(), record() as seen:
        for chunk in chunks:
            module.forward_cached(torch.tensor([ids[start : start + chunk]], device=module.device), cache)
            start += chunk
    return seen.arrays()


def _ends(subject: Subject, cached: Mapping[str, Array], full: Mapping[str, Array]) -> dict[str, Array]:
    """The part of each full value that the last cached call computes: the last places of each axis.

    A cache that forgets has its keys in an order of its own; they are left out.
    """
    wanted = {}
    forgets = subject.config.mask.kept is not None
    for name, got in cached.items():
        if forgets and (row := describe(name)) and "s" in row.axes:
            continue
        whole = full.get(name)
        if whole is None and name.endswith(("k_all", "v_all")):
            own = name.removesuffix("_all")
            whole = full.get(f"{own}_rot", full.get(own))
        if whole is not None and whole.ndim == got.ndim:
            wanted[name] = whole[tuple(slice(-size, None) for size in got.shape)]
    return wanted


def cached(subject: Subject) -> Finding:
    if subject.config.mask.bidirectional_prefix >= len(subject.ids):
        return Finding("skipped", NO_CACHE)
    module, ids = subject.module(torch.float64), subject.ids
    steps = min(STEPS, len(ids) - int(subject.config.mask.bidirectional_prefix))
    got = _extended(module, ids, [*([len(ids) - steps] if len(ids) > steps else []), *[1] * steps])
    wanted = _ends(subject, got, _values(module, [ids]))
    return compared(got, wanted, CACHED_AGAINST_FULL)


def chunked(subject: Subject) -> Finding:
    together = subject.config.mask.bidirectional_prefix
    if together >= len(subject.ids):
        return Finding("skipped", NO_CACHE)
    module, ids = subject.module(torch.float64), subject.ids
    size, first = max(1, len(ids) // 3), int(together)
    rest = len(ids) - first
    chunks = [first] * (first > 0) + [size] * (rest // size) + [rest % size] * (rest % size > 0)
    got = _extended(module, ids, chunks)
    return compared(got, _ends(subject, got, _values(module, [ids])), CACHED_AGAINST_FULL)


def batched(subject: Subject) -> Finding:
    module, ids = subject.module(torch.float64), subject.ids
    among = _values(module, [ids[::-1], ids, [ids[0]] * len(ids)])
    alone = _values(module, [ids])
    got = {name: among[name][1:2] for name in alone if _has_rows(name)}
    return compared(got, {name: alone[name] for name in got}, CACHED_AGAINST_FULL)


def padded(subject: Subject) -> Finding:
    """On the left and on the right, with the tokens' own positions."""
    module, ids = subject.module(torch.float64), subject.ids
    room = min(5, module.config.context_length - len(ids)) or 1
    ids = ids[: module.config.context_length - room]
    if not ids:
        return Finding("skipped", "its context has no room for padding")
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
    return compared(got, wanted, CACHED_AGAINST_FULL)


def _has_rows(name: str) -> bool:
    row = describe(name)
    return row is not None and row.axes[:1] == ("b",) and name != "mask"


BUDGET = f"{CACHED_AGAINST_FULL:g}"
CHECKS = (
    Check("cached", "decoding with the cache gives what reading everything at once gives", BUDGET, cached),
    Check("chunked prefill", "so does reading the prompt in pieces", BUDGET, chunked),
    Check("batched", "a row's values do not depend on its neighbours", BUDGET, batched),
    Check("padded", "nor on padding, left or right", BUDGET, padded),
)

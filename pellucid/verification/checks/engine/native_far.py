"""Checks the compiled decoder after as many keys as people's texts have: 1,100, and all but the last few of
the context. One layer is run, after random keys and values (`far_positions.py`)."""

from dataclasses import replace

import numpy as np
import torch

from pellucid.base.errors import PellucidError
from pellucid.config import ModelConfig
from pellucid.engine.cache import Cache
from pellucid.engine.cpu.decoder import find_obstacle
from pellucid.engine.taps import record
from pellucid.reference.op import Array
from pellucid.verification.checks.check import Check, Subject
from pellucid.verification.checks.engine.far_positions import CALLS, draw_past, fill_cache
from pellucid.verification.checks.engine.native import (
    FLOATS,
    QUANTIZED,
    CachedDecoder,
    judge_decoded,
    name_types,
)
from pellucid.verification.checks.engine.observed import (
    RecordedTexts,
    Text,
    join_texts,
    round_cached,
    split_positions,
)
from pellucid.verification.checks.engine.paths import ROUNDING, UsedBudget
from pellucid.verification.verdict import Finding, Judged, Verdict

MANY = 1100
"""Keys that a text has soon, and more than any block of the decoder's loops."""
MOST_NUMBERS = 2**23
"""Keys of a layer as numbers; of a longer context the last positions within it are checked."""


def find_starts(config: ModelConfig) -> tuple[list[int], list[int]]:
    """Returns the numbers of positions to fill, and those that would take too much memory."""
    last, most = config.context_length - sum(CALLS), MOST_NUMBERS // (config.n_kv_head * config.d_head)
    wanted = sorted({start for start in (min(MANY, last), last) if start > 0})
    return sorted({min(start, most) for start in wanted}), [start for start in wanted if start > most]


def measure_native_far(subject: Subject) -> Finding:
    """Judges a chunk and two single tokens after many keys, in every type."""
    subject = subject.excerpt
    starts, omitted = find_starts(subject.config)
    used, types = UsedBudget(subject), QUANTIZED if subject.quantized else FLOATS
    for dtype, cache_dtype in types[:2] if subject.is_quick and subject.is_large else types:
        module, name = subject.module(dtype, 1), name_types(subject, dtype, cache_dtype)
        if (obstacle := find_obstacle(module)) is not None:
            return Finding(Verdict.SKIPPED, f"the compiled decoder does not have {obstacle}")
        if not starts:
            return Finding(Verdict.SKIPPED, "its context is too short to fill positions before others")
        try:
            decoder = CachedDecoder(module, cache_dtype, threads=2)
        except PellucidError as error:
            return Finding(Verdict.SKIPPED, str(error))
        for start in starts:
            past = _round_past(draw_past(module.config, start), cache_dtype)
            with torch.no_grad():
                texts = _read_after(subject, decoder, start, past)
            if not (report := judge_decoded(subject, module, texts, cache_dtype, past=past)):
                found = report.summarize()
                return replace(found, measured=f"in {name}: {found.measured}, after {start:,} keys")
            used.add(name, report, texts)
    found = used.summarize()
    after = " and ".join(f"{start:,}" for start in starts)
    measured = f"{found.measured}, in the first layer after {after} keys"
    measured += f"; not after {', '.join(f'{start:,}' for start in omitted)}: too large" if omitted else ""
    return Finding(found.verdict, measured)


def _round_past(past: dict[str, Array], dtype: torch.dtype) -> dict[str, Array]:
    """Returns keys and values as a cache of this type returns them."""
    return {
        name: np.asarray(round_cached(torch.from_numpy(value).float(), dtype).double().numpy())
        for name, value in past.items()
    }


def _read_after(
    subject: Subject, decoder: CachedDecoder, start: int, past: dict[str, Array]
) -> RecordedTexts:
    """Fills a cache, reads tokens after it, and returns what they computed as one pass over them; into a
    ring they are read one by one (`observed.py`)."""
    cache = Cache(decoder.config, 1, start + sum(CALLS), dtype=decoder.cache_dtype)
    fill_cache(cache, start, past)
    ids, at, text = subject.make_ids(sum(CALLS)), 0, Text()
    for count in [1] * sum(CALLS) if cache.ring else CALLS:
        with record(fused=True, model=decoder.module) as seen:
            decoder.forward_packed([(cache, ids[at : at + count])], range(count))
        text += split_positions(dict(seen), 0, range(count), count)
        at += count
    return next(join_texts([(ids, text)]))


CHECKS = (
    Check(
        "native far",
        "Each value of the compiled decoder after many keys, or in a full context, equals its result.",
        ROUNDING,
        measure_native_far,
        Judged.MACHINE,
    ),
)

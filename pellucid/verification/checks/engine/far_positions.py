"""Checks positions that no short text reaches: past a window, past the trained length of a scaled RoPE, and
at the end of the context, or as far towards it as memory allows.

Reading thousands of tokens would take minutes. A cache does not ask how it was filled: here it is filled with
random keys and values up to a position, and a chunk and two single tokens are read after them. What they
compute must follow from those keys and values. So must what the compiled decoder computes, in one layer,
after as many keys as people's texts have, 1,100, and after all but the last few of the context.

"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from pellucid.base.dtypes import dtype_name
from pellucid.base.errors import PellucidError
from pellucid.config import ModelConfig
from pellucid.engine.cache import Cache
from pellucid.engine.cpu.decoder import find_obstacle
from pellucid.engine.layer_cache import KeyValueCache, SlotCache
from pellucid.engine.taps import record
from pellucid.engine.transformer import Transformer
from pellucid.explanation.engines import applied_weights
from pellucid.formats.pretrained import parameter_count
from pellucid.reference.op import Array
from pellucid.reference.training import forward
from pellucid.verification.checks.check import Subject
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
from pellucid.verification.checks.engine.paths import (
    NO_CACHE,
    UsedBudget,
    in_type,
    judge_values,
    remove_logits,
)
from pellucid.verification.verdict import Finding, Verdict

CALLS = (5, 1, 1)
"""Tokens of the calls that are read after the filled positions: a chunk, and two decode steps."""
LEAST_NUMBERS, MOST_NUMBERS = 2**20, 2**27
"""Between these, a cache may have as many numbers as the model has weights, keys and values of the layers
that are run; in place of positions beyond it the last one within it is checked, and the finding says so."""


def find_far_starts(subject: Subject) -> tuple[list[int], list[int]]:
    """Returns the numbers of positions to fill, and those that would take too much memory: half of the
    window, just past it, past the trained length of the scaling, and up to the end of the context; the last
    that fits where one of them does not."""
    config, last = subject.config, subject.config.context_length - sum(CALLS)
    wanted, prefix = [last], config.mask.bidirectional_prefix
    if (visible := config.mask.visible_past) is not None:
        wanted += [sum(visible) // 2, sum(visible) - 3, sum(visible) + 1, 2 * sum(visible)]
    if trained := getattr(config.positions, "original_context", 0):
        wanted += [trained - 3, trained + 1]
    starts = sorted({start for start in wanted if 0 < start <= last and start >= prefix})
    numbers = min(max(parameter_count(subject.model.config.parameters()), LEAST_NUMBERS), MOST_NUMBERS)
    most = numbers // (2 * config.n_kv_head * config.d_head * config.n_layer)
    omitted = [start for start in starts if start > most]
    within = {min(start, most) for start in starts}
    return sorted(start for start in within if start > 0 and start >= prefix), omitted


def measure_far_decoding(subject: Subject) -> Finding:
    subject = subject.excerpt
    starts, omitted = find_far_starts(subject)
    if subject.config.mask.bidirectional_prefix > subject.config.context_length:
        return Finding(Verdict.SKIPPED, NO_CACHE)
    if not isinstance(Cache(subject.config, 1, 1).layers[0], KeyValueCache):
        return Finding(Verdict.SKIPPED, "its cache is a running sum and holds no keys")
    if not starts:
        why = "its context is too short" if not omitted else "a cache of its whole context is too large"
        return Finding(Verdict.SKIPPED, f"{why} to fill positions before those that are read")
    used = UsedBudget(subject)
    for dtype in subject.dtypes:
        module = subject.module(dtype)
        for start in starts:
            past = draw_past(subject.config, start)
            with torch.no_grad():
                texts = _read_after(subject, module, start, past)
            tape = forward(module.config, applied_weights(module), texts.ids, past=past)
            tape = remove_logits(tape) if "logits" not in texts.values else tape
            report = judge_values(subject.trace(tape, texts.ids[0]), texts.values, texts.absent)
            if not report:
                found = in_type(report.summarize(), dtype_name(dtype))
                return Finding(
                    found.verdict, f"{found.measured}, after {start:,} tokens", found.at, found.message
                )
            used.add(dtype_name(dtype), report, texts)
    found = used.summarize()
    measured = f"{found.measured}, after {', '.join(f'{start:,}' for start in starts)}"
    measured += f"; not after {', '.join(f'{start:,}' for start in omitted)}: too large" if omitted else ""
    return Finding(found.verdict, measured)


def draw_past(config: ModelConfig, start: int) -> dict[str, Array]:
    """Returns random keys and values [1 K P D] of the filled positions, by the names of the specification;
    bfloat16 and float16 hold them exactly."""
    rng = np.random.default_rng(start)
    shape = (1, config.n_kv_head, start, config.d_head)
    return {
        f"blocks.{layer}.attn.past_{which}": np.rint(rng.normal(0.0, 16.0, shape)) / 16
        for layer in range(config.n_layer)
        for which in "kv"
    }


def fill_cache(cache: Cache, start: int, past: dict[str, Array]) -> None:
    """Writes keys and values into the slots of a new cache, as its layout (`engine/cache.py`) says: position
    p in slot p, or of a ring's last positions in slot first + (p − first) mod last."""
    places = np.arange(start)
    slots = places
    if cache.ring is not None:
        first, last = cache.ring
        places = places[(places < first) | (places >= start - last)]
        slots = np.where(places < first, places, first + (places - first) % last)
    for layer, held in enumerate(cache.layers):
        assert isinstance(held, SlotCache)
        k, v = (torch.from_numpy(past[f"blocks.{layer}.attn.past_{which}"][:, :, places]) for which in "kv")
        device = held.buffers[0].device
        held.write(k.to(device), v.to(device), torch.from_numpy(slots).to(device))
    cache.advance(start)


def _read_after(subject: Subject, module: Transformer, start: int, past: dict[str, Array]) -> RecordedTexts:
    """Reads tokens after the filled positions, and returns what they computed as one pass over them."""
    visible = sum(module.config.mask.visible_past or ())  # a longer cache is a ring
    capacity = min(max(start + sum(CALLS), visible + 1), module.config.context_length)
    cache = Cache(module.config, 1, capacity, dtype=module.dtype, device=module.device)
    fill_cache(cache, start, past)

    def read(ids: list[int]) -> None:
        module.forward_cached(torch.tensor([ids], device=module.device), cache)

    return _record_calls(subject.make_ids(sum(CALLS)), CALLS, module, read)


def _record_calls(
    ids: list[int], counts: Sequence[int], module: Transformer, read: Callable[[list[int]], object]
) -> RecordedTexts:
    """Reads ids in calls of these numbers of tokens, and returns what was computed as one pass over them."""
    at, text = 0, Text()
    for count in counts:
        with record(fused=True, model=module) as seen:
            read(ids[at : at + count])
        text += split_positions(dict(seen), 0, range(count), count)
        at += count
    return next(join_texts([(ids, text)]))


MANY = 1100
"""Keys that a text has soon, and more than any block of the decoder's loops."""
MOST_DECODED_NUMBERS = 2**23
"""Keys of a layer as numbers; of a longer context the last positions within it are checked."""


def find_starts(config: ModelConfig) -> tuple[list[int], list[int]]:
    """Returns the numbers of positions to fill, and those that would take too much memory."""
    last, most = (
        config.context_length - sum(CALLS),
        MOST_DECODED_NUMBERS // (config.n_kv_head * config.d_head),
    )
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
                texts = _decode_after(subject, decoder, start, past)
            if not (report := judge_decoded(subject, module, texts, cache_dtype, past=past)):
                found = report.summarize()
                return in_type(replace(found, measured=f"{found.measured}, after {start:,} keys"), name)
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


def _decode_after(
    subject: Subject, decoder: CachedDecoder, start: int, past: dict[str, Array]
) -> RecordedTexts:
    """Fills a cache, reads tokens after it, and returns what they computed as one pass over them; into a
    ring they are read one by one (`observed.py`)."""
    cache = Cache(decoder.config, 1, start + sum(CALLS), dtype=decoder.cache_dtype)
    fill_cache(cache, start, past)
    counts = [1] * sum(CALLS) if cache.ring else CALLS
    read = partial(_read_packed, decoder, cache)
    return _record_calls(subject.make_ids(sum(CALLS)), counts, decoder.module, read)


def _read_packed(decoder: CachedDecoder, cache: Cache, ids: list[int]) -> None:
    decoder.forward_packed([(cache, ids)], range(len(ids)))

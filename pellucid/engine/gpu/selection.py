"""The drawn token of a row of logits: its place in the order of scores, found without sorting them.

A token weighs w = exp((score − highest) / temperature), rounded to an integer of `UNIT`, so that sums do not
depend on their order. The order is by score, of equals the smaller id first. Top-k, top-p and min-p each keep
the first tokens of that order, so what all of them keep weighs the least of what each keeps; the drawn token
is the first at which the sum of weights exceeds u times that.

Tokens are counted and weighed in bins of score, put in the order of their bins, and searched within one bin.
"""

import triton
import triton.language as tl

from pellucid.engine.gpu import drawing
from pellucid.engine.gpu.arithmetic import start_dependents, wait_for_inputs

BINS: tl.constexpr = tl.constexpr(drawing.BINS)
NATS: tl.constexpr = tl.constexpr(32)
"""Natural logarithms that the bins span. What lies beyond them weighs nothing, and is in the last bin."""
UNIT: tl.constexpr = tl.constexpr(2**44)
"""The weight of the token with the largest logit; those of 2¹⁹ tokens can be added."""
LAST_ID: tl.constexpr = tl.constexpr(2**32 - 1)
CHUNK: tl.constexpr = tl.constexpr(1024)
"""Tokens of a bin that are looked at together."""


@triton.jit
def find_highest(best, row, n_blocks: tl.constexpr, blocks: tl.constexpr):
    """Returns the largest logit of a row, of which the product has kept that of each block."""
    b = tl.arange(0, blocks)
    return tl.max(tl.load(best + row * n_blocks + b, b < n_blocks, float("-inf")), 0).to(tl.float64)


@triton.jit
def measure_distance(scores, highest, temperature):
    """(highest − score) / temperature; 0 where that is not a number, which `pick` takes care of."""
    distance = (highest - scores.to(tl.float64)) / temperature
    return tl.where(distance >= 0.0, distance, 0.0)


@triton.jit
def find_bins(distance):
    return tl.minimum(distance * (BINS / NATS), BINS - 1).to(tl.int32)


@triton.jit
def weigh(distance):
    return (tl.exp(-distance) * UNIT + 0.5).to(tl.int64)


@triton.jit
def make_keys(scores, ids):
    """Returns integers [N] in the order of the tokens: the larger, the earlier."""
    bits = (scores + 0.0).to(tl.int32, bitcast=True)  # −0 and 0 are equal scores
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.to(tl.int64) << 32) | (LAST_ID - ids.to(tl.int64))


@triton.jit
def fill_bins(
    logits, slots, best, settings, counts, weights, kept, most,
    vocab_size: tl.constexpr, n_blocks: tl.constexpr, blocks: tl.constexpr, is_dependent: tl.constexpr,
):  # fmt: skip
    """Counts and weighs some tokens of a row in bins; `kept` [rows] is the weight of those that min-p
    keeps."""
    start_dependents(is_dependent)
    row, ids = tl.program_id(1), tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    slot = tl.load(slots + row)
    wait_for_inputs(is_dependent)
    if slot >= 0:
        is_in = ids < vocab_size
        scores = tl.load(logits + row.to(tl.int64) * vocab_size + ids, is_in, 0.0)
        highest = find_highest(best, row, n_blocks, blocks)
        distance = measure_distance(scores, highest, tl.load(settings + row))
        found, w = find_bins(distance), weigh(distance)
        tl.atomic_add(counts + row * BINS + found, 1, is_in, sem="relaxed")
        tl.atomic_add(weights + row * BINS + found, w, is_in & (w > 0), sem="relaxed")
        least = tl.load(settings + 3 * most + row) * UNIT
        tl.atomic_add(kept + row, tl.sum(tl.where(is_in & (w >= least), w, 0)), sem="relaxed")


@triton.jit
def place_bins(slots, counts, ends, is_dependent: tl.constexpr):
    """Stores where each bin of a row begins."""
    start_dependents(is_dependent)
    row, b = tl.program_id(0), tl.arange(0, BINS)
    slot = tl.load(slots + row)
    wait_for_inputs(is_dependent)
    if slot >= 0:
        held = tl.load(counts + row * BINS + b)
        tl.store(ends + row * BINS + b, tl.cumsum(held, 0) - held)


@triton.jit
def order_bins(
    logits, slots, best, settings, ends, order,
    vocab_size: tl.constexpr, n_blocks: tl.constexpr, blocks: tl.constexpr, is_dependent: tl.constexpr,
):  # fmt: skip
    """Writes the ids of some tokens to their bins, in any order within a bin; `ends` becomes where each bin
    ends. The last bin is left out: no token of it can be drawn."""
    start_dependents(is_dependent)
    row, ids = tl.program_id(1), tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    slot = tl.load(slots + row)
    wait_for_inputs(is_dependent)
    if slot >= 0:
        start = row.to(tl.int64) * vocab_size
        scores = tl.load(logits + start + ids, ids < vocab_size, 0.0)
        highest = find_highest(best, row, n_blocks, blocks)
        found = find_bins(measure_distance(scores, highest, tl.load(settings + row)))
        is_in = (ids < vocab_size) & (found < BINS - 1)
        places = tl.atomic_add(ends + row * BINS + found, 1, is_in, sem="relaxed")
        tl.store(order + start + places, ids, is_in)


@triton.jit
def find_range(ends, counts, at):
    """Returns where a bin begins and ends in the order; the last one, which has none, is empty."""
    end = tl.load(ends + at)
    return end - tl.where(at < BINS - 1, tl.load(counts + at), 0), end


@triton.jit
def load_chunk(logits, order, start, end, highest, temperature):
    """Returns the keys and weights of some tokens of a bin, and which of them are there."""
    places = start + tl.arange(0, CHUNK)
    is_in = places < end
    ids = tl.load(order + places, is_in, 0)
    scores = tl.load(logits + ids, is_in, 0.0)
    return make_keys(scores, ids), weigh(measure_distance(scores, highest, temperature)), is_in


@triton.jit
def sum_from(logits, order, start, end, highest, temperature, key):
    """Returns what the tokens of a bin with this key and larger ones weigh."""
    total = tl.zeros((), tl.int64)
    while start < end:
        keys, weights, is_in = load_chunk(logits, order, start, end, highest, temperature)
        total += tl.sum(tl.where(is_in & (keys >= key), weights, 0))
        start += CHUNK
    return total


@triton.jit
def find_key(logits, order, first, end, highest, temperature, needed, is_weighed: tl.constexpr):
    """Returns the key of the first token of a bin at which the sum of weights, or of tokens, is at least
    `needed`, by bisection between the keys that are there."""
    low, high = tl.full((), 0x7FFFFFFFFFFFFFFF, tl.int64), tl.full((), -0x7FFFFFFFFFFFFFFF, tl.int64)
    start = first
    while start < end:
        keys, weights, is_in = load_chunk(logits, order, start, end, highest, temperature)
        low = tl.minimum(low, tl.min(tl.where(is_in, keys, low)))
        high = tl.maximum(high, tl.max(tl.where(is_in, keys, high)))
        start += CHUNK
    while low < high:
        middle = (low | high) - ((low ^ high) >> 1)
        total, above, below = tl.zeros((), tl.int64), high, low
        start = first
        while start < end:
            keys, weights, is_in = load_chunk(logits, order, start, end, highest, temperature)
            is_above = is_in & (keys >= middle)
            total += tl.sum(tl.where(is_above, weights if is_weighed else 1, 0).to(tl.int64))
            above = tl.minimum(above, tl.min(tl.where(is_above, keys, above)))
            below = tl.maximum(below, tl.max(tl.where(is_in & (keys < middle), keys, below)))
            start += CHUNK
        is_reached = total >= needed
        low, high = tl.where(is_reached, above, low), tl.where(is_reached, high, below)
    return low


@triton.jit
def find_token(
    logits, slots, steps, best, settings, u, counts, weights, kept, ends, order, chosen, most,
    vocab_size: tl.constexpr, n_blocks: tl.constexpr, blocks: tl.constexpr, ring: tl.constexpr,
    is_dependent: tl.constexpr,
):  # fmt: skip
    """Stores the drawn token of a row, and empties its bins for the next step."""
    start_dependents(is_dependent)
    row, b = tl.program_id(0), tl.arange(0, BINS)
    slot = tl.load(slots + row)
    wait_for_inputs(is_dependent)
    if slot < 0:
        return
    logits += row.to(tl.int64) * vocab_size
    order += row.to(tl.int64) * vocab_size
    counts, weights, ends = counts + row * BINS, weights + row * BINS, ends + row * BINS
    temperature, top_k = tl.load(settings + row), tl.load(settings + most + row)
    top_p = tl.load(settings + 2 * most + row)
    number = tl.load(u + (tl.load(steps + row) % ring) * most + row)
    highest = find_highest(best, row, n_blocks, blocks)
    held, reached = tl.load(counts + b), tl.cumsum(tl.load(weights + b), 0)
    total = tl.max(reached)
    if top_k < vocab_size:
        needed = tl.maximum(top_k, 1).to(tl.int64)
        passed = tl.cumsum(held, 0)
        at = tl.sum((passed < needed).to(tl.int32))
        if at < BINS - 1:  # else it keeps every token that weighs something
            needed -= tl.max(tl.where(b < at, passed, 0))
            start, end = find_range(ends, counts, at)
            key = find_key(logits, order, start, end, highest, temperature, needed, False)
            key = (key >> 32) << 32  # tokens with the same score are kept as well
            total = tl.max(tl.where(b < at, reached, 0))
            total += sum_from(logits, order, start, end, highest, temperature, key)
    if top_p < 1.0:
        needed = tl.maximum(tl.ceil(top_p * total), 1.0).to(tl.int64)
        at = tl.minimum(tl.sum((reached < needed).to(tl.int32)), BINS - 1)
        before = tl.max(tl.where(b < at, reached, 0))
        start, end = find_range(ends, counts, at)
        key = find_key(logits, order, start, end, highest, temperature, needed - before, True)
        total = before + sum_from(logits, order, start, end, highest, temperature, key)
    total = tl.minimum(total, tl.load(kept + row))
    needed = tl.minimum((number * total).to(tl.int64) + 1, total)
    at = tl.minimum(tl.sum((reached < needed).to(tl.int32)), BINS - 1)
    before = tl.max(tl.where(b < at, reached, 0))
    start, end = find_range(ends, counts, at)
    key = find_key(logits, order, start, end, highest, temperature, needed - before, True)
    tl.store(chosen + row, tl.minimum(LAST_ID - (key & LAST_ID), vocab_size - 1).to(tl.int32))
    tl.store(counts + b, 0)
    tl.store(weights + b, tl.zeros((BINS,), tl.int64))
    tl.store(kept + row, tl.zeros((), tl.int64))

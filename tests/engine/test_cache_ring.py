"""Where the mask forgets, the cache keeps only what can still be seen, and says the same."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import torch

from pellucid.base.errors import TokenError, UsageError
from pellucid.config import ModelConfig
from pellucid.engine.cache import Cache
from pellucid.engine.transformer import Transformer
from pellucid.generation.request import Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.verification.mismatch import CACHED_AGAINST_FULL, find_mismatch
from tests.agreement.engines import SIZES, array, fast

LONG = 40
MASKS = [
    {"kind": "window", "size": 1},
    {"kind": "window", "size": 3},
    {"kind": "window", "size": 7},
    {"kind": "sinks", "tokens": 2, "size": 3},
    {"kind": "block_local", "size": 4},
]
every_mask = pytest.mark.parametrize("mask", MASKS, ids=lambda mask: "_".join(map(str, mask.values())))


def made(mask: dict[str, object], **more: object) -> tuple[ModelConfig, Transformer]:
    config = ModelConfig.from_dict(SIZES | {"mask": mask, "n_kv_head": 2, "context_length": LONG} | more)
    return config, fast(config)


def texts(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 7, (rows, LONG)))


def same(got: torch.Tensor, wanted: torch.Tensor) -> None:
    assert find_mismatch("logits", array(got), array(wanted), CACHED_AGAINST_FULL) is None


def new(config: ModelConfig, batch: int, capacity: int = LONG, **more: object) -> Cache:
    return Cache(config, batch, capacity, dtype=torch.float64, **more)  # type: ignore[arg-type]


@every_mask
@pytest.mark.parametrize("positions", ["rope", "alibi", "t5"])
@torch.no_grad()
def test_token_by_token_far_past_the_window_equals_the_whole(mask: dict[str, object], positions: str) -> None:
    config, model = made(mask, positions=positions)
    ids, cache = texts(2), new(config, 2)
    whole = model(ids)
    assert cache.ring is not None
    for t in range(LONG):
        same(model.forward_cached(ids[:, t : t + 1], cache)[:, 0], whole[:, t])


@every_mask
@pytest.mark.parametrize("stride", [1, LONG])
@torch.no_grad()
def test_pieces_of_any_size_equal_the_whole(mask: dict[str, object], stride: int) -> None:
    config, model = made(mask)
    ids = texts(2)
    whole, rng = model(ids), np.random.default_rng(stride)
    for _ in range(6):
        cuts = [0, *sorted(rng.choice(range(1, LONG), size=5, replace=False).tolist()), LONG]
        cache = new(config, 2, stride=stride)
        parts = [model.forward_cached(ids[:, a:b], cache) for a, b in itertools.pairwise(cuts)]
        same(torch.cat(parts, 1), whole)


@every_mask
@torch.no_grad()
def test_rows_of_any_lengths_in_any_order_equal_each_alone(mask: dict[str, object]) -> None:
    """Random counts in each call, rows dealt out anew, rows begun again from nothing."""
    config, model = made(mask)
    for seed in range(5):
        rng, ids = np.random.default_rng(seed), texts(3, seed)
        whole, at, cache = model(ids), [0, 0, 0], new(config, 3)
        while max(at) < LONG - 6:
            counts = rng.integers(0, 6, 3).tolist()
            width = max(1, *counts)
            given = torch.stack([ids[row, at[row] : at[row] + width] for row in range(3)])
            got = model.forward_cached(given, cache, counts)
            for row, count in enumerate(counts):
                same(got[row, :count], whole[row, at[row] : at[row] + count])
                at[row] += count
            if rng.random() < 0.2:
                fresh = int(rng.integers(3))
                at[fresh] = 0
                cache.crop([0 if row == fresh else length for row, length in enumerate(at)])
            if rng.random() < 0.3:
                order = rng.permutation(3).tolist()
                cache.reorder(order)
                ids, whole, at = ids[order], whole[order], [at[row] for row in order]


def test_its_memory_does_not_grow_with_the_text() -> None:
    config, _ = made({"kind": "window", "size": 5})
    config = dataclasses.replace(config, context_length=100_000)
    sizes = {capacity: new(config, 1, capacity).bytes for capacity in (100, 10_000, 100_000)}
    assert len(set(sizes.values())) == 1
    plain = dataclasses.replace(config, mask=ModelConfig.from_dict(SIZES).mask)
    assert new(plain, 1, 100_000).bytes > 10_000 * sizes[100_000]


@torch.no_grad()
def test_a_part_of_what_is_gone_cannot_be_cropped_to() -> None:
    config, model = made({"kind": "window", "size": 3})
    cache, ids = new(config, 1), texts(1)
    model.forward_cached(ids[:, :3], cache)
    cache.crop(2)  # all of it is still there
    same(model.forward_cached(ids[:, 2:3], cache)[:, 0], model(ids)[:, 2])
    model.forward_cached(ids[:, 3:10], cache)
    with pytest.raises(UsageError, match="crop it to 0"):
        cache.crop(8)
    cache.crop(10)
    same(model.forward_cached(ids[:, 10:11], cache)[:, 0], model(ids)[:, 10])
    cache.crop(0)
    same(model.forward_cached(ids[:, :4], cache), model(ids[:, :4]))


@torch.no_grad()
def test_an_int8_ring_stays_near_the_full_one() -> None:
    config, model = made({"kind": "sinks", "tokens": 2, "size": 3})
    ids = texts(1)
    cache = Cache(config, 1, LONG, dtype=torch.int8)
    got = torch.cat([model.forward_cached(ids[:, t : t + 1], cache) for t in range(LONG)], 1)
    assert float((got - model(ids)).abs().max()) < 0.2 * float(got.abs().max())


# ---- a prefix that sees itself


PREFIX = {"kind": "prefix", "length": 4}


@torch.no_grad()
def test_a_prefix_read_in_one_call_equals_the_whole() -> None:
    config, model = made(PREFIX)
    ids, whole = texts(3), None
    whole = model(ids)
    cache = new(config, 3)
    same(model.forward_cached(ids[:, :6], cache), whole[:, :6])
    for t in range(6, LONG):
        same(model.forward_cached(ids[:, t : t + 1], cache)[:, 0], whole[:, t])
    counts = [4, 7, 5]
    cache = new(config, 3)
    got = model.forward_cached(ids[:, :7], cache, counts, last_only=True)[:, 0]
    same(got, whole[range(3), [c - 1 for c in counts]])


@torch.no_grad()
def test_what_only_fills_up_a_row_is_not_seen_by_a_prefix() -> None:
    """A text shorter than the prefix, in a batch with a longer one."""
    config, model = made(PREFIX)
    ids = texts(2)
    got = model.forward_cached(ids[:, :5], new(config, 2), [2, 5])
    same(got[0, :2], model(ids[:1, :2])[0])


@torch.no_grad()
def test_a_prefix_in_pieces_is_refused() -> None:
    config, model = made(PREFIX)
    cache = new(config, 1)
    model.forward_cached(texts(1)[:, :3], cache)
    with pytest.raises(UsageError, match=r"first 4 tokens.*only 3"):
        model.forward_cached(texts(1)[:, 3:4], cache)


def generate(model: Transformer, prompts: list[list[int]], **settings: Any) -> list[list[int]]:
    engine, sampling = Engine(model, slots=len(prompts)), Sampling(**settings)
    handles = [engine.add(Request(tuple(prompt), sampling)) for prompt in prompts]
    return [list(handle.result()[0].ids) for handle in handles]


def test_prompts_of_any_lengths_are_gone_on_with_under_a_prefix() -> None:
    """Longer than a step's budget, in a batch, some of them ending before the others."""
    _, model = made(PREFIX, context_length=700)
    prompts = [[i % 7 for i in range(600)], [i % 5 for i in range(520)], [1, 2, 3, 4]]
    alone = [generate(model, [prompt], max_new_tokens=3)[0] for prompt in prompts]
    assert generate(model, prompts, max_new_tokens=3) == alone
    stop = alone[0][0]
    for ended, text in zip(generate(model, prompts, max_new_tokens=3, stop_ids=[stop]), alone, strict=True):
        assert ended == (text[: text.index(stop) + 1] if stop in text else text)


def test_a_prompt_shorter_than_the_prefix_is_refused_before_anything_is_written() -> None:
    _, model = made(PREFIX)
    with pytest.raises(TokenError, match="at least 4 tokens"):
        generate(model, [[1, 2, 3, 4], [1, 2]], max_new_tokens=2)


def test_a_row_that_was_cleared_can_be_read_anew_under_a_prefix() -> None:
    config, model = made(PREFIX)
    ids, cache = texts(2), new(config, 2)
    with torch.no_grad():
        model.forward_cached(ids[:, :6], cache)
        cache.crop([6, 0])
        got = model.forward_cached(torch.stack([ids[0, 6:11], ids[1, :5]]), cache)
        same(got[0], model(ids[:1, :11])[0, 6:])
        same(got[1], model(ids[1:, :5])[0])

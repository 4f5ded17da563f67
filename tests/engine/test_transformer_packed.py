"""Several rows in one call without padding: each is what it would be alone, bit for bit."""

import random
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from pellucid.config import ModelConfig
from pellucid.engine.cache import Cache
from pellucid.engine.transformer import Transformer
from pellucid.verification.mismatch import CACHED_AGAINST_FULL, find_mismatch
from tests.agreement.engines import CACHED, CHOICES, array, fast

Schedule = Sequence[tuple[int, Sequence[int]]]


def split(ids: list[int]) -> list[list[int]]:
    """A prompt of the first half, then one token at a time."""
    half = max(1, len(ids) // 2)
    return [ids[:half], *([id] for id in ids[half:])]


def texts(config: ModelConfig, rng: random.Random, count: int = 4) -> list[list[int]]:
    lengths = [rng.randint(1, config.context_length) for _ in range(count)]
    return [[rng.randrange(config.vocab_size) for _ in range(length)] for length in lengths]


def run_alone(model: Transformer, ids: list[int]) -> Tensor:
    cache = Cache(model.config, 1, model.config.context_length, dtype=model.dtype)
    return torch.cat([model.forward_packed([(cache, part)], range(len(part))) for part in split(ids)])


def run_together(model: Transformer, rows: list[list[int]], rng: random.Random) -> list[Tensor]:
    """Every text in a row of one cache, some of them in each call, in any order."""
    cache = Cache(model.config, len(rows) + 1, model.config.context_length, dtype=model.dtype)
    views = [cache.row(1 + i) for i in range(len(rows))]
    left, found = [split(ids) for ids in rows], [list[Tensor]() for _ in rows]
    while any(left):
        active = [i for i, parts in enumerate(left) if parts and rng.random() < 0.7]
        rng.shuffle(active)
        parts = [(i, left[i].pop(0)) for i in active]
        if not parts:
            continue
        places = range(sum(len(part) for _, part in parts))
        logits = model.forward_packed([(views[i], part) for i, part in parts], places)
        for (i, _), some in zip(parts, logits.split([len(part) for _, part in parts]), strict=True):
            found[i].append(some)
    return [torch.cat(some) for some in found]


@pytest.mark.parametrize("name", CACHED)
@torch.no_grad()
def test_a_row_does_not_depend_on_the_others_bit_for_bit(name: str) -> None:
    rng = random.Random(name)
    model = fast(CACHED[name], seed=3).float()
    rows = texts(model.config, rng)
    for ids, logits in zip(rows, run_together(model, rows, rng), strict=True):
        assert torch.equal(logits, run_alone(model, ids))


@pytest.mark.parametrize("name", CACHED)
@torch.no_grad()
def test_packed_rows_equal_the_full_forward(name: str) -> None:
    rng = random.Random(name)
    model = fast(CACHED[name], seed=3)
    rows = texts(model.config, rng)
    for ids, logits in zip(rows, run_together(model, rows, rng), strict=True):
        full = model(torch.tensor([ids]))[0]
        assert find_mismatch("logits", array(logits), array(full), CACHED_AGAINST_FULL) is None


@torch.no_grad()
def test_several_segments_of_one_row_equal_as_many_calls() -> None:
    model = fast(CHOICES["positions/rope"], seed=3).float()
    one, other = (Cache(model.config, 1, 8) for _ in range(2))
    together = model.forward_packed([(one, [1, 2, 3]), (one, [4]), (one, [5])], [2, 3, 4])
    apart = [model.forward_packed([(other, part)], [len(part) - 1]) for part in ([1, 2, 3], [4], [5])]
    assert torch.equal(together, torch.cat(apart))
    assert one.lengths.tolist() == other.lengths.tolist() == [5]


@torch.no_grad()
def test_a_row_of_a_cache_is_a_view_of_it() -> None:
    model = fast(CHOICES["positions/rope"], seed=3).float()
    cache = Cache(model.config, 3, 8)
    buffers = [buffer.data_ptr() for layer in cache.layers for buffer in layer.buffers]
    view = cache.row(1)
    model.forward_packed([(view, [1, 2, 3])], [2])
    assert cache.lengths.tolist() == [0, 3, 0] and cache.host_lengths.tolist() == [0, 3, 0]
    cache.copy_row(1, 2)
    assert cache.lengths.tolist() == [0, 3, 3]
    assert torch.equal(*(model.forward_packed([(cache.row(row), [4])], [0]) for row in (1, 2)))
    cache.crop([0, 2, 4])
    assert view.longest == 2
    assert buffers == [buffer.data_ptr() for layer in cache.layers for buffer in layer.buffers]


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 17, 64])
@pytest.mark.parametrize("kind", ["silu", "gelu", "gelu_tanh", "relu", "relu_squared"])
@torch.no_grad()
def test_an_activation_does_not_depend_on_its_place(kind: str, rows: int) -> None:
    from pellucid.engine import activations

    x = torch.randn(80, 23, generator=torch.Generator().manual_seed(0)) * 3
    activation = activations.make(kind)
    assert torch.equal(activation(x[5 : 5 + rows].clone()), activation(x)[5 : 5 + rows])

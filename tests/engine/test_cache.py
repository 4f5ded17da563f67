"""What is kept equals what would be computed again: the cache against the whole, step by step."""

import mmap
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from torch import Tensor

from pellucid.base.errors import UsageError
from pellucid.config import ModelConfig
from pellucid.engine import layer_cache
from pellucid.engine.cache import Cache
from pellucid.engine.layer_cache import Int8Cache, KeyValueCache
from pellucid.engine.taps import record
from pellucid.engine.transformer import Transformer
from pellucid.verification.mismatch import CACHED_AGAINST_FULL, find_mismatch
from tests.agreement.engines import (
    CHOICES,
    array,
    fast,
)
from tests.reference.models import weights

ROPE = CHOICES["positions/rope"]
IDS = torch.tensor([[1, 3, 1, 5, 0, 2, 6, 4], [0, 2, 4, 4, 6, 1, 1, 3], [5, 5, 0, 1, 2, 6, 3, 0]])
COUNT = IDS.shape[1]


@pytest.fixture(autouse=True)
def _no_graph() -> Iterator[None]:
    with torch.no_grad():
        yield


def new(config: ModelConfig, batch: int = len(IDS), capacity: int = COUNT, stride: int = 1) -> Cache:
    return Cache(config, batch, capacity, dtype=torch.float64, stride=stride)


def same(got: Tensor, wanted: Tensor, tolerance: float = CACHED_AGAINST_FULL) -> None:
    assert find_mismatch("logits", array(got), array(wanted), tolerance) is None


def in_chunks(model: Transformer, cache: Cache, sizes: list[int]) -> Tensor:
    parts = IDS.split(sizes, dim=1)
    return torch.cat([model.forward_cached(part, cache) for part in parts], dim=1)


@pytest.mark.parametrize("length", [2, 0, [2, 5, 1], [4, 4, 0]])
def test_after_a_crop_the_text_goes_on_from_there(length: int | list[int]) -> None:
    model, cache = fast(ROPE), new(ROPE)
    model.forward_cached(IDS[:, :5] * 0 + 6, cache)  # another text, which must leave no trace beyond the crop
    cache.crop(0)
    model.forward_cached(IDS[:, :5], cache)
    cache.crop(length)
    lengths = [length] * 3 if isinstance(length, int) else length
    assert cache.lengths.tolist() == lengths
    step = torch.stack([IDS[row, at] for row, at in enumerate(lengths)])[:, None]
    same(model.forward_cached(step, cache)[:, 0], model(IDS)[range(3), lengths])


def test_a_crop_beyond_the_end_forgets_nothing() -> None:
    model, cache = fast(ROPE), new(ROPE)
    model.forward_cached(IDS[:, :3], cache)
    cache.crop(7)
    assert cache.lengths.tolist() == [3, 3, 3]


@pytest.mark.parametrize("rows", [[2, 0, 1], [1, 1, 1], [0, 2, 0]])
@pytest.mark.parametrize("lengths", [[4, 4, 4], [4, 2, 3]])
def test_reordered_rows_continue_what_they_were(rows: list[int], lengths: list[int]) -> None:
    model, cache = fast(ROPE), new(ROPE)
    model.forward_cached(IDS[:, :4], cache, lengths)
    cache.reorder(rows)
    assert cache.batch == len(rows) and cache.lengths.tolist() == [lengths[row] for row in rows]
    at = [lengths[row] for row in rows]
    same(model.forward_cached(IDS[rows, at][:, None], cache)[:, 0], model(IDS)[rows, at])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
def test_a_cache_of_less_precision_stays_near(dtype: torch.dtype, tolerance: float) -> None:
    model = fast(ROPE)
    cache = Cache(ROPE, len(IDS), COUNT, dtype=dtype)
    got = in_chunks(model, cache, [3, 1, 1, 2, 1])
    same(got, model(IDS), tolerance)
    assert got.dtype == torch.float64 and not torch.equal(got, model(IDS))


# ---- int8


def test_an_int8_number_is_off_by_at_most_half_of_its_scale() -> None:
    layer = Int8Cache((2, 3, 5, 8), "cpu")
    k, v = torch.randn(2, 2, 3, 5, 8, generator=torch.Generator().manual_seed(0))
    k[0, 1, 2] *= 1000  # one token of one head: nobody else's scale may grow
    v[1, 0, 3] = 0
    layer.write(k, v, torch.arange(5))
    assert [tuple(scale.shape) for scale in layer.buffers[2:]] == [(2, 3, 5, 1)] * 2
    for x, back, scale in zip((k, v), layer.read(5, torch.float32), layer.buffers[2:], strict=True):
        torch.testing.assert_close(scale, x.abs().amax(-1, keepdim=True) / 127)
        assert ((x - back).abs() <= scale * 0.5001).all()
    assert layer.buffers[0].dtype == torch.int8 and layer.buffers[0].abs().max() == 127


def test_the_int8_cache_hardly_moves_the_next_token() -> None:
    config = ROPE.from_dict(ROPE.to_dict() | {"d_model": 64, "d_head": 16, "n_layer": 4, "d_ff": 128})
    model = Transformer.from_weights(config, weights(config, scale=0.125), dtype=torch.float64)
    exact = model(IDS).log_softmax(-1)
    got = in_chunks(model, Cache(config, len(IDS), COUNT, dtype=torch.int8), [1] * COUNT).log_softmax(-1)
    divergence = (exact.exp() * (exact - got)).sum(-1)
    print(
        f"KL of the next token with an int8 cache: mean {divergence.mean():.1e}, most {divergence.max():.1e}"
    )
    assert 0 < divergence.max() < 1e-3


def test_a_cache_knows_its_bytes() -> None:
    per_token = 2 * ROPE.n_layer * ROPE.n_kv_head
    assert new(ROPE).bytes == per_token * 3 * COUNT * ROPE.d_head * 8
    assert Cache(ROPE, 3, COUNT, dtype=torch.int8).bytes == per_token * 3 * COUNT * (ROPE.d_head + 4)


# ---- what cannot be


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_a_large_cache_is_zeros_and_takes_its_memory_when_it_is_used(dtype: torch.dtype) -> None:
    def count_pages() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    before, shape = count_pages(), (4, 2, 2**16, 512 // dtype.itemsize)
    buffer = layer_cache.make_zeros(shape, dtype, None)
    assert (buffer.shape, buffer.dtype) == (shape, dtype)
    buffer[0, 0, 0] = 1
    assert buffer[0, 0, 0].all() and not buffer[:, :, -1].any()
    assert (count_pages() - before) * mmap.PAGESIZE < 2**25 < buffer.nbytes


def test_a_full_cache_refuses_and_is_unharmed() -> None:
    model, cache = fast(ROPE), new(ROPE, capacity=5)
    model.forward_cached(IDS[:, :4], cache)
    with pytest.raises(UsageError, match=r"6 tokens.*cache of 5"):
        model.forward_cached(IDS[:, 4:6], cache)
    same(model.forward_cached(IDS[:, 4:5], cache)[:, 0], model(IDS)[:, 4])


@pytest.mark.parametrize("capacity", [0, -1, 9])
def test_a_cache_beyond_the_context_is_refused(capacity: int) -> None:
    with pytest.raises(UsageError, match=f"capacity.*8.*{capacity}"):
        new(ROPE, capacity=capacity)


def test_where_all_see_all_nothing_can_be_kept() -> None:
    with pytest.raises(UsageError, match="mask 'none'"):
        new(CHOICES["mask/none"])


def test_a_static_reach_never_changes() -> None:
    model, cache = fast(ROPE), new(ROPE, stride=COUNT)
    visible_lengths = set()
    for t in range(COUNT):
        model.forward_cached(IDS[:, t : t + 1], cache)
        visible_lengths.add(cache.visible_length)
    assert visible_lengths == {COUNT}
    with record("blocks.0.attn.k_all") as seen:
        cache.crop(2)
        model.forward_cached(IDS[:, 2:3], cache)
    assert seen["blocks.0.attn.k_all"].shape[2] == COUNT


# ---- any history


class History(RuleBasedStateMachine):
    """Extend, crop and reorder in any order: the next logits are those of the texts read from scratch."""

    def __init__(self) -> None:
        super().__init__()
        self.cache, self.texts = new(ROPE, batch=2), [[], []]
        self.model = MODEL

    @precondition(lambda self: max(map(len, self.texts)) < COUNT)
    @rule(data=st.data())
    def extend(self, data: st.DataObject) -> None:
        room = COUNT - max(map(len, self.texts))
        width = data.draw(st.integers(1, room))
        counts = data.draw(
            st.lists(st.integers(0, width), min_size=len(self.texts), max_size=len(self.texts))
        )
        if data.draw(st.booleans()):
            counts = [width] * len(counts)
        tokens = st.lists(st.integers(0, 6), min_size=width, max_size=width)
        ids = [data.draw(tokens) for _ in counts]
        with torch.no_grad():
            even = counts == [width] * len(counts)
            got = self.model.forward_cached(torch.tensor(ids), self.cache, None if even else counts)
            for row, count in enumerate(counts):
                self.texts[row] = self.texts[row] + ids[row][:count]
                if count:
                    wanted = self.model(torch.tensor([self.texts[row]]))[0, -count:]
                    same(got[row, :count], wanted)

    @rule(data=st.data())
    def crop(self, data: st.DataObject) -> None:
        lengths = [data.draw(st.integers(0, COUNT)) for _ in self.texts]
        one = data.draw(st.booleans())
        self.cache.crop(lengths[0] if one else lengths)
        self.texts = [
            text[: lengths[0] if one else length] for text, length in zip(self.texts, lengths, strict=True)
        ]

    @rule(data=st.data())
    def reorder(self, data: st.DataObject) -> None:
        count = len(self.texts)
        rows = data.draw(st.lists(st.integers(0, count - 1), min_size=count, max_size=count))
        self.cache.reorder(rows)
        self.texts = [self.texts[row] for row in rows]

    @invariant()
    def lengths_are_those_of_the_texts(self) -> None:
        lengths = [len(text) for text in self.texts]
        assert self.cache.lengths.tolist() == lengths
        assert self.cache.longest == max(lengths) and self.cache.is_uniform == (len(set(lengths)) == 1)


MODEL = fast(ROPE)


def settings(examples: int) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=examples, stateful_step_count=12, deadline=None, derandomize=True, database=None
    )


def test_any_history_of_a_cache_equals_reading_from_scratch() -> None:
    run_state_machine_as_test(History, settings=settings(25))


def test_padding_at_the_end_of_every_row_changes_nothing() -> None:
    model = Transformer.from_weights(ROPE, weights(ROPE), dtype=torch.float64)
    cache = new(ROPE)
    model.forward_cached(IDS[:, :1], cache)
    padded = model.forward_cached(IDS[:, 1:3], cache, [1, 1, 1])[:, :1]  # as many columns as keys
    assert torch.allclose(padded, model(IDS[:, :2])[:, 1:], rtol=0, atol=1e-12)


@pytest.mark.torture
def test_many_histories_of_a_cache_equal_reading_from_scratch() -> None:
    run_state_machine_as_test(History, settings=settings(1500))


def test_a_full_layer_reads_back_what_was_written() -> None:
    layer = KeyValueCache((2, 1, 4, 2), torch.float64, "cpu")
    k, v = torch.arange(16.0).reshape(2, 2, 1, 2, 2).double()
    layer.write(k, v, torch.tensor([[0, 2], [3, 1]]))
    keys, values = layer.read(4, torch.float64)
    assert torch.equal(keys[0, 0, [0, 2]], k[0, 0]) and torch.equal(keys[1, 0, [3, 1]], k[1, 0])
    assert torch.equal(values[1, 0, [3, 1]], v[1, 0]) and not keys[0, 0, [1, 3]].any()

"""Any two choices whose past can be kept: what is cached equals what would be computed again."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from pellucid.base.names import describe
from pellucid.config import ModelConfig
from pellucid.engine import layer_cache
from pellucid.engine.cache import Cache
from pellucid.engine.taps import record
from pellucid.reference import transformer as specification
from pellucid.reference.op import Array
from pellucid.reference.training import forward
from pellucid.verification.mismatch import CACHED_AGAINST_FULL, find_first_mismatch, find_mismatch
from tests.agreement.engines import CHOICES, COVER, DIFFERENT, Runs, array, config_of, shared, text

IDS = torch.tensor([[1, 3, 1, 5, 0, 2, 6, 4], [0, 2, 4, 4, 6, 1, 1, 3], [5, 5, 0, 1, 2, 6, 3, 0]])
COUNT = IDS.shape[1]
PROMPT = 3
"""The tokens of a first call; who sees whom ahead of time must be among them."""
KEPT = [row for row in COVER if (config := config_of(row)) and not config.mask.bidirectional_prefix]
KEPT_FROM_PROMPT = {
    name: config for name, config in DIFFERENT.items() if config.mask.bidirectional_prefix <= PROMPT
}

every_stride = pytest.mark.parametrize("stride", [1, 3, COUNT])


@pytest.fixture(scope="module", params=KEPT, ids=text)
def runs(request: pytest.FixtureRequest) -> Runs:
    config = config_of(request.param)
    assert config
    return Runs(config, IDS)


@pytest.fixture(autouse=True)
def _no_graph() -> Iterator[None]:
    with torch.no_grad():
        yield


def new(config: ModelConfig, stride: int = 1) -> Cache:
    return Cache(config, len(IDS), COUNT, dtype=torch.float64, stride=stride)


def same(got: Tensor, wanted: Array) -> None:
    assert find_mismatch("logits", array(got), wanted, CACHED_AGAINST_FULL) is None


def test_every_choice_that_does_not_look_ahead_is_kept() -> None:
    assert set(DIFFERENT) - set(KEPT_FROM_PROMPT) == {"mask/none", "mask/window_global"}
    kept, every = ({(field, str(row[field])) for row in rows for field in row} for rows in (KEPT, COVER))
    assert {field for field, _ in every - kept} == {"mask"}


@every_stride
def test_chunks_of_any_size_and_single_tokens_equal_the_whole(runs: Runs, stride: int) -> None:
    cuts = sorted(np.random.default_rng(stride).choice(range(1, COUNT), size=3, replace=False))
    sizes = [1] * COUNT if stride == 1 else np.diff([0, *cuts, COUNT]).tolist()
    cache = new(runs.config, stride)
    parts = [runs.model.forward_cached(part, cache) for part in IDS.split(sizes, 1)]
    same(torch.cat(parts, 1), runs.logits)


@every_stride
def test_rows_of_different_lengths_share_a_cache(runs: Runs, stride: int) -> None:
    cache, counts, whole = new(runs.config, stride), [3, 1, 4], runs.logits
    last = runs.model.forward_cached(IDS[:, :4], cache, counts, last_only=True)
    same(last[:, 0], whole[range(3), [c - 1 for c in counts]])
    assert cache.lengths.tolist() == counts and not cache.is_uniform
    for _ in range(4):
        at = cache.lengths.tolist()
        same(runs.model.forward_cached(IDS[range(3), at][:, None], cache)[:, 0], whole[range(3), at])


def test_a_row_that_brings_nothing_is_untouched(runs: Runs) -> None:
    cache, at = new(runs.config), [5, 3, 4]
    runs.model.forward_cached(IDS[:, :3], cache)
    runs.model.forward_cached(IDS[:, 3:5], cache, [2, 0, 1])
    same(runs.model.forward_cached(IDS[range(3), at][:, None], cache)[:, 0], runs.logits[range(3), at])


# ---- against the specification's cache


def both_caches(runs: Runs) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
    """Call by call, what each engine says: a prompt of three, then single tokens."""
    cache, past, start = new(runs.config), None, 0
    for count in (PROMPT, 1, 2, 1):
        part = IDS[:, start : start + count]
        with record() as seen:
            runs.model.forward_cached(part, cache)
        tape = forward(runs.config, runs.values, part.numpy(), past=past)
        past, start = specification.cache(tape, runs.config), start + count
        wanted = shared(tape)
        got = {name: array(value) for name, value in seen.items()}
        if cache.ring:  # what is kept stands in an order of its own
            got = {name: value for name, value in got.items() if "s" not in describe(name).axes}
        if "mask" in wanted and "mask" in got:
            got["mask"] = np.broadcast_to(got["mask"], wanted["mask"].shape)
        yield got, {name: wanted[name] for name in wanted if name in got}


@pytest.mark.parametrize("name", KEPT_FROM_PROMPT)
def test_both_engines_caches_agree_on_every_value(name: str) -> None:
    for step, (got, wanted) in enumerate(both_caches(Runs(DIFFERENT[name]))):
        assert find_first_mismatch(got, wanted, CACHED_AGAINST_FULL) is None
        assert "blocks.1.attn.z" in wanted and "logits" in wanted
        if name.startswith("positions/"):
            assert ("blocks.1.attn.k_all" in wanted) is (step > 0)


def test_a_cache_that_writes_one_slot_off_is_found_at_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    write = layer_cache.write_slots

    def off(buffer: Tensor, new: Tensor, slots: Tensor) -> None:
        write(buffer, new, (slots + 1) % buffer.shape[2] if len(new[0, 0]) == 1 else slots)

    monkeypatch.setattr(layer_cache, "write_slots", off)
    runs = Runs(CHOICES["positions/rope"])
    found = [find_first_mismatch(got, wanted, CACHED_AGAINST_FULL) for got, wanted in both_caches(runs)]
    assert found[0] is None and found[1] is not None and found[1].name == "blocks.0.attn.k_all"

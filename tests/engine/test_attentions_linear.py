"""Linear attention in the fast engine: chunks, running sums and the cache give what all pairs give."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pellucid.base.errors import UsageError
from pellucid.config import ModelConfig
from pellucid.engine.attentions.linear import RunningSumCache
from pellucid.engine.cache import Cache
from pellucid.engine.taps import record
from pellucid.engine.transformer import Transformer
from pellucid.parts.attentions import LinearAttentionConfig
from pellucid.reference.attentions.linear import recurrent
from pellucid.reference.op import Ref
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.normalization import l1_normalize
from pellucid.reference.tape import Tape
from pellucid.verification.mismatch import (
    BETWEEN_ENGINES,
    CACHED_AGAINST_FULL,
    find_first_mismatch,
    find_mismatch,
)
from tests.agreement.engines import array, fast, gradients, run, specified
from tests.reference.models import weights

KINDS = ("linear_elu", "linear_relu", "linear_random")
COUNT = 8
IDS = torch.tensor([[1, 3, 1, 5, 0, 2, 6, 4], [0, 2, 4, 4, 6, 1, 1, 3], [5, 5, 0, 1, 2, 6, 3, 0]])
TARGETS = IDS.roll(-1, 1)
PADDINGS = {
    "none": None,
    "left": [[0] * 5 + [1] * 3, [1] * 8, [0] + [1] * 7],
    "right": [[1] * 4 + [0] * 4] * 3,
}

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of three positions, so that eight need a sum that runs."""
    monkeypatch.setattr(LinearAttentionConfig, "chunk", 3)


def config_of(kind: Any, **more: Any) -> ModelConfig:
    sizes = {"vocab_size": 7, "context_length": 8, "n_layer": 2, "n_head": 4, "n_kv_head": 2, "d_model": 16}
    return ModelConfig.from_dict(sizes | {"d_ff": 10, "attention": kind} | more)


def same(got: Tensor, wanted: Tensor) -> None:
    found = find_mismatch("logits", array(got), array(wanted), CACHED_AGAINST_FULL)
    assert not found, str(found)


def new(config: ModelConfig, stride: int = 1) -> Cache:
    return Cache(config, len(IDS), COUNT, dtype=torch.float64, stride=stride)


# ---- chunks


@pytest.mark.parametrize(
    ("kind", "heads"), [*((kind, 2) for kind in KINDS), ("linear_elu", 1), ("linear_elu", 4)]
)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mask", ["causal", "none"])
def test_chunks_give_the_specification_s_logits_and_gradients(
    kind: str, padding: str, mask: str, heads: int
) -> None:
    config, real = config_of(kind, mask=mask, n_kv_head=heads), PADDINGS[padding]
    model = fast(config)
    value = run(model, IDS.tolist(), TARGETS.tolist(), real)
    value.backward()
    tape = specified(config, weights(config), IDS.numpy(), TARGETS.numpy(), real)
    got = {"loss": value.detach().numpy(), **gradients(model)}
    found = find_first_mismatch(got, {name: tape[name] for name in got}, BETWEEN_ENGINES)
    assert not found, str(found)


@every_kind
@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 7])
def test_any_length_is_cut_into_chunks(kind: str, count: int) -> None:
    model, ids = fast(config_of(kind)), IDS[:, :count]
    with torch.no_grad():
        with record("logits") as seen:
            model(ids)
        same(model(ids), seen["logits"])


def test_the_chunks_are_really_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum that misses one chunk is found: the tests above can fail."""
    model = fast(config_of("linear_elu"))
    with torch.no_grad():
        right = model(IDS)
        real = torch.Tensor.cumsum
        monkeypatch.setattr(torch.Tensor, "cumsum", lambda self, dim: real(self, dim) * 1.001)
        wrong = model(IDS)
    same(wrong[:, :3], right[:, :3])
    assert not torch.allclose(wrong[:, 3:], right[:, 3:])


@every_kind
def test_given_positions_decide_who_sees_whom(kind: str) -> None:
    model = fast(config_of(kind, positions="rope"))
    later = torch.arange(COUNT).expand(3, -1)
    with torch.no_grad():
        same(model(IDS, positions=later), model(IDS))


@every_kind
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_less_precision_stays_finite_and_near(kind: str, dtype: torch.dtype) -> None:
    config = config_of(kind)
    exact, model = (
        Transformer.from_weights(config, weights(config, scale=0.2), dtype=d) for d in (torch.float64, dtype)
    )
    with torch.no_grad():
        got, wanted = model(IDS).double(), exact(IDS)
    assert got.isfinite().all()
    assert (got - wanted).abs().max() < (0.05 if dtype == torch.bfloat16 else 1e-5) * wanted.abs().max()


def test_a_query_that_finds_nothing_gets_zeros_and_finite_gradients() -> None:
    """With no channel above 0 in any query, linear_relu takes nothing: z = 0 in both paths."""
    config = config_of("linear_relu", positions="none", biases=["qkv"])
    values = weights(config)
    for layer in range(2):
        values[f"blocks.{layer}.attn.q_proj.weight"] *= 0
        values[f"blocks.{layer}.attn.q_proj.bias"] = -np.ones(16)
    model = Transformer.from_weights(config, values, dtype=torch.float64)
    for fused in (True, False):
        model.zero_grad()
        with record("blocks.*.attn.z", fused=fused) as seen:
            run(model, IDS.tolist(), TARGETS.tolist()).backward()
        assert not any(z.any() for z in seen.values())
        assert all(np.isfinite(slope).all() for slope in gradients(model).values())


# ---- the recurrence of the specification


def loss_of(tape: Tape, z: Ref) -> None:
    weight = tape.constant("weight", np.random.default_rng(1).normal(size=z.shape))
    tape.backward(tape("loss", einsum, z, weight, spec="bhtd,bhtd->"))


def test_token_by_token_on_the_tape_equals_all_pairs_in_values_and_gradients() -> None:
    draw = np.random.default_rng(0)
    given = {"q": (2, 4, 5, 3), "k": (2, 2, 5, 3), "v": (2, 2, 5, 2)}
    arrays = {name: np.abs(draw.normal(size=shape)) for name, shape in given.items()}
    pairs, steps = Tape(), Tape()
    for tape in (pairs, steps):
        for name, value in arrays.items():
            tape.parameter(name, value)
    q, k, v = (pairs.ref(name) for name in given)
    seen = pairs.constant("mask", np.tril(np.ones((2, 1, 5, 5))))
    kernel = pairs("kernel", einsum, q, k, seen, spec="b(kg)tr,bksr,b1ts->b(kg)ts")
    loss_of(
        pairs, pairs("z", einsum, pairs("pattern", l1_normalize, kernel), v, spec="b(kg)ts,bksd->b(kg)td")
    )
    t = steps.scope("attn")
    loss_of(steps, recurrent(t, *(steps.ref(name) for name in given)))
    assert find_mismatch("z", steps["attn.recurrent.z"], pairs["z"], 1e-12) is None
    for name in given:
        assert find_mismatch(f"d.{name}", steps[f"d.{name}"], pairs[f"d.{name}"], 1e-12) is None
    state = np.einsum("bksr,bksd->bkrd", arrays["k"][:, :, :3], arrays["v"][:, :, :3])
    assert find_mismatch("state", steps["attn.recurrent.2.state"], state, 1e-12) is None
    assert steps.about["attn.recurrent.2.norm"].symbol == "n_2"


# ---- the cache


@every_kind
@pytest.mark.parametrize("stride", [1, 3, COUNT])
@pytest.mark.parametrize("sizes", [[1] * 8, [3, 5], [7, 1], [1, 4, 2, 1], [8]])
@torch.no_grad()
def test_calls_of_any_size_continue_the_sum(kind: str, stride: int, sizes: list[int]) -> None:
    config = config_of(kind)
    model, cache = fast(config), new(config, stride)
    same(torch.cat([model.forward_cached(part, cache) for part in IDS.split(sizes, 1)], 1), model(IDS))


@every_kind
@torch.no_grad()
def test_what_fills_up_a_row_never_enters_its_sum(kind: str) -> None:
    config = config_of(kind)
    model, cache, whole = fast(config), new(config), fast(config)(IDS)
    counts = [3, 0, 4]
    got = model.forward_cached(IDS[:, :5], cache, counts)
    for row, count in enumerate(counts):
        same(got[row, :count], whole[row, :count]) if count else None
    assert not cache.layers[0].buffers[0][1].any()
    for _ in range(4):
        at = cache.lengths.tolist()
        same(model.forward_cached(IDS[range(3), at][:, None], cache)[:, 0], whole[range(3), at])


@every_kind
@torch.no_grad()
def test_beams_continue_the_rows_that_live_on(kind: str) -> None:
    config = config_of(kind)
    model, cache = fast(config), new(config)
    model.forward_cached(IDS[:, :4], cache, [4, 2, 3])
    rows, at = [2, 0, 0], [3, 4, 4]
    cache.reorder(rows)
    same(model.forward_cached(IDS[rows, at][:, None], cache)[:, 0], model(IDS)[rows, at])


@torch.no_grad()
def test_a_sum_can_be_cleared_and_not_cut() -> None:
    config = config_of("linear_elu")
    model, cache = fast(config), new(config)
    model.forward_cached(IDS[:, :5], cache)
    with pytest.raises(UsageError, match="crop it to 0"):
        cache.crop(3)
    cache.crop(5)
    same(model.forward_cached(IDS[:, 5:6], cache)[:, 0], model(IDS)[:, 5])
    cache.crop([0, 6, 0])
    at = cache.lengths.tolist()
    assert at == [0, 6, 0]
    same(model.forward_cached(IDS[range(3), at][:, None], cache)[:, 0], model(IDS)[range(3), at])


def test_the_cache_is_as_large_at_any_length_and_wide_enough_to_add_up() -> None:
    config = config_of("linear_elu", context_length=4096)
    sizes = {Cache(config, 1, capacity).bytes for capacity in (1, 64, 4096)}
    assert sizes == {config.n_layer * config.attention.count_cached(config, 1) * 4}
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        assert Cache(config, 1, 8, dtype=dtype).layers[0].buffers[0].dtype == torch.float32
    layer = new(config_of("linear_random")).layers[0]
    assert isinstance(layer, RunningSumCache) and layer.buffers[0].shape == (3, 2, 16, 5)


def test_eight_bits_for_a_sum_are_refused() -> None:
    with pytest.raises(UsageError, match="int8"):
        Cache(config_of("linear_elu"), 1, 8, dtype=torch.int8)


@every_kind
def test_a_watched_cached_call_names_what_exists_and_nothing_else(kind: str) -> None:
    config = config_of(kind)
    model, cache = fast(config), new(config)
    with torch.no_grad(), record() as seen:
        model.forward_cached(IDS[:, :3], cache)
        model.forward_cached(IDS[:, 3:5], cache)
    names = {name.removeprefix("blocks.0.attn.") for name in seen if name.startswith("blocks.0.attn.")}
    assert names == {"q", "k", "v", "q_rot", "k_rot", "q_feat", "z"}


def test_gradients_flow_through_a_call_and_not_into_the_past() -> None:
    config = config_of("linear_elu")
    model, cache = fast(config), new(config)
    with torch.no_grad():
        model.forward_cached(IDS[:, :3], cache)
    model.forward_cached(IDS[:, 3:6], cache).square().sum().backward()
    assert all(np.isfinite(slope).all() for slope in gradients(model).values())
    assert not cache.layers[0].buffers[0].requires_grad


@every_kind
@torch.no_grad()
def test_decoding_compiles_once(kind: str) -> None:
    torch._dynamo.reset()
    config = config_of(kind, n_layer=1)
    model = fast(config)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    one, other = (Cache(config, 1, COUNT, dtype=torch.float64, stride=COUNT) for _ in range(2))
    for t in range(COUNT):
        one.reserve(1)
        with torch._dynamo.config.patch(error_on_recompile=t > 0):
            got = compiled(IDS[:1, t : t + 1], cache=one)
        one.advance(1)
        same(got, model.forward_cached(IDS[:1, t : t + 1], other))


def test_moving_and_rounding_a_model_leaves_its_directions_exact() -> None:
    config = config_of("linear_random")
    model = fast(config).to(torch.bfloat16)
    table = model.blocks[0].attn.attend.features.directions  # type: ignore[union-attr]
    assert table.dtype == torch.float64 and np.array_equal(array(table), config.attention.directions(4))  # type: ignore[attr-defined]
    assert "directions" not in " ".join(model.state_dict())

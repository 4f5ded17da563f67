"""Keys in tiles: the numbers of softmax attention, forward and backward, each of them explained."""

from typing import Any

import numpy as np
import pytest

from pellucid.config import ModelConfig
from pellucid.config.cost import cost, total
from pellucid.explanation.derive import derive
from pellucid.explanation.trace import Trace
from pellucid.reference.ops import online_softmax
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from pellucid.reference.transformer import cache
from pellucid.verification.mismatch import find_first_mismatch, find_mismatch
from tests.parts.attentions.heads import config_of, drawn, heads
from tests.reference.models import alone, check_explained, weights, wrong_cell

EXACT = 1e-12
SIZES = {
    "vocab_size": 7,
    "context_length": 8,
    "n_layer": 2,
    "n_head": 4,
    "n_kv_head": 2,
    "d_model": 8,
    "d_ff": 6,
}
IDS, TARGETS = [[1, 3, 1, 5, 0], [0, 2, 4, 4, 6]], [[3, -100, 5, 0, 2], [2, 4, 4, 6, 1]]


def both(allowed: Any, tile: int, bias: Any = None, size: float = 1.0, **more: Any) -> tuple[Tape, Tape]:
    """The same heads with softmax attention and with tiles."""
    q, k, v = drawn(4)
    config = {"n_head": 4, "n_kv_head": 2, "d_head": 3} | more
    kinds = ("softmax", {"kind": "tiled", "tile": tile})
    whole, tiles = (heads(config_of(kind, **config), size * q, size * k, v, allowed, bias) for kind in kinds)
    return whole, tiles


def same(tiles: Tape, whole: Tape) -> None:
    names = [name for name in ("attn.z", "loss", "d.q", "d.k", "d.v", "d.bias") if name in whole]
    got, wanted = ({name: tape[name] for name in names} for tape in (tiles, whole))
    found = find_first_mismatch(got, wanted, EXACT)
    assert not found, str(found)


@pytest.mark.parametrize("tile", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("size", [1.0, 3.0])
def test_any_tile_gives_softmax_attention_and_its_gradients(tile: int, size: float) -> None:
    whole, tiles = both("causal", tile, size=size)
    same(tiles, whole)
    same(*reversed(both(None, tile, size=size, mask="none")))


def test_scores_of_thousands_neither_overflow_nor_vanish() -> None:
    whole, tiles = both("causal", 2, size=100.0)
    assert np.abs(whole["attn.scores"]).max() > 10_000
    assert find_mismatch("z", tiles["attn.z"], whole["attn.z"], EXACT) is None
    assert all(np.isfinite(tiles[f"d.{name}"]).all() for name in "qkv")


def test_lse_is_the_log_sum_exp_of_the_whole_row() -> None:
    whole, tiles = both("causal", 2)
    masked = whole["attn.masked"]
    wanted = np.log(np.exp(masked).sum(-1, keepdims=True))
    assert find_mismatch("lse", tiles["attn.lse"], wanted, EXACT) is None
    joined = np.concatenate([tiles[f"attn.tiles.{j}.masked"] for j in range(3)], -1)
    assert find_mismatch("pattern", np.exp(joined - tiles["attn.lse"]), whole["attn.pattern"], EXACT) is None


def test_the_running_maximum_sum_and_mixture_by_hand() -> None:
    """Scores ln 2, ln 4 | ln 8: m = ln 4 then ln 8; l = ½ + 1, then 1½ · ½ + 1 = 1¾."""
    q, k = [[[[1.0]]]], [[[[np.log(2)], [np.log(4)], [np.log(8)]]]]
    config = config_of({"kind": "tiled", "tile": 2}, d_head=1, mask="none")
    tape = heads(config, q, k, [[[[4.0], [2.0], [1.0]]]], allowed=None)
    message = {
        "tiles.0.top": np.log(4),
        "tiles.0.sum": 1.5,
        "tiles.0.mix": 4.0,
        "tiles.1.rescale": 0.5,
        "tiles.1.top": np.log(8),
        "tiles.1.sum": 1.75,
        "tiles.1.mix": 3.0,
        "lse": np.log(14),
        "z": 12 / 7,
    }
    for name, value in message.items():
        assert float(tape[f"attn.{name}"].item()) == pytest.approx(value, rel=1e-14), name
    np.testing.assert_allclose(tape["attn.tiles.0.powers"][0, 0, 0], [0.5, 1], rtol=1e-14)


@pytest.mark.parametrize("tile", [1, 2, 3])
def test_a_tile_and_a_row_that_are_all_forbidden_give_zeros_and_no_nan(tile: int) -> None:
    """The first query sees nothing, the second only the last keys, the third only the first."""
    allowed = np.zeros((1, 1, 5, 5))
    allowed[..., 1, 4:], allowed[..., 2, :1], allowed[..., 3:, 1:4] = 1, 1, 1
    whole, tiles = both(allowed, tile)
    same(tiles, whole)
    assert not tiles["attn.z"][:, :, 0].any() and (tiles["attn.lse"][:, :, 0] == -np.inf).all()
    assert all(not np.isnan(value).any() for value in tiles.values.values())
    assert wrong_cell(tiles, alone) is None


def test_cap_and_a_learned_bias_are_taken_tile_by_tile() -> None:
    bias = np.random.default_rng(5).normal(size=(4, 5, 5))
    whole, tiles = both("causal", 2, bias=bias, score_cap={"kind": "tanh", "limit": 0.7})
    same(tiles, whole)
    assert tiles["attn.tiles.2.biased"].shape == (2, 4, 5, 1)


def model(**more: Any) -> ModelConfig:
    return ModelConfig.from_dict(SIZES | {"attention": {"kind": "tiled", "tile": 2}} | more)


@pytest.mark.parametrize("padding", [None, [[0, 0, 1, 1, 1], [1] * 5], [[1] * 5, [1, 1, 1, 0, 0]]])
@pytest.mark.parametrize("positions", ["rope", "alibi", "t5"])
def test_a_whole_model_has_the_same_logits_and_gradients(padding: Any, positions: str) -> None:
    tapes = []
    for attention in ("softmax", {"kind": "tiled", "tile": 2}):
        config = model(attention=attention, positions=positions)
        tapes.append(forward(config, weights(config), IDS, TARGETS, padding=padding))
        tapes[-1].backward(tapes[-1].ref("loss"))
    whole, tiles = tapes
    names = ["logits", "blocks.1.attn.z", *(f"d.{ref.name}" for ref in whole.parameters())]
    found = find_first_mismatch(
        *({n: tape[n] for n in names if n in whole} for tape in (tiles, whole)), EXACT
    )
    assert not found, str(found)


def test_a_cached_call_takes_all_keys_in_tiles() -> None:
    config = model()
    whole = forward(config, weights(config), IDS)
    past = cache(forward(config, weights(config), np.array(IDS)[:, :3]), config)
    rest = forward(config, weights(config), np.array(IDS)[:, 3:], past=past)
    assert find_mismatch("logits", rest["logits"], whole["logits"][:, 3:], EXACT) is None
    assert rest["blocks.0.attn.tiles.2.scores"].shape == (2, 4, 2, 1)


def test_the_backward_pass_reads_scores_values_and_lse_and_nothing_that_ran_along() -> None:
    _, tape = both("causal", 2)
    backward = [step for step in tape.steps.values() if step.phase == "bwd"]
    ran_along = {
        f"attn.tiles.{j}.{name}" for j in range(3) for name in ("top", "powers", "sum", "mix", "rescale")
    }
    assert not [step.name for step in backward if ran_along.intersection(step.inputs)]
    assert not [name for name in ran_along if f"d.{name}" in tape]
    assert tape.steps["d.attn.tiles.1.masked"].op is online_softmax.tiled_output_scores_back
    assert tape.steps["d.attn.tiles.1.v"].op is online_softmax.tiled_output_values_back


@pytest.mark.rotating
@pytest.mark.parametrize("more", [{}, {"score_cap": "tanh", "positions": "t5"}, {"mask": "none"}])
def test_every_cell_is_explained_replays_and_is_costed(more: dict[str, Any]) -> None:
    config = model(**more, n_layer=1)
    tape = forward(config, weights(config), [[1, 3, 2]], [[3, 0, 1]])
    held = sum(tape.values[name].size for name, role in tape.roles.items() if role == "act")
    held -= sum(tape.values[name].size for name in tape.values if name in ("lse", "nll", "loss"))
    assert total(cost(config, length=3, width=1)).activation_bytes == held
    tape.backward(tape.ref("loss"))
    check_explained(tape)


def test_the_formulas_read_as_on_paper() -> None:
    config = model(n_layer=1)
    tape = forward(config, weights(config), [[1, 3, 2]], [[3, 0, 1]])
    tape.backward(tape.ref("loss"))
    trace = Trace(tape)

    def formula(name: str) -> str:
        last = ",".join(str(size - 1) for size in tape[name].shape)
        return str(derive(trace, f"{name}[{last}]", depth=0)).splitlines()[1].strip("│ ")

    attn = "blocks.0.attn"
    assert formula(f"{attn}.tiles.1.top") == "m_1[h,t] = max(m_0[h,t], max_s M_1[h,t])"
    assert formula(f"{attn}.tiles.1.rescale") == "α_1[h,t] = e^(m_0[h,t] - m_1[h,t])"
    assert formula(f"{attn}.tiles.1.sum") == "l_1[h,t] = l_0[h,t] · α_1[h,t] + Σ_s E_1[h,t]"
    assert formula(f"{attn}.tiles.1.mix") == "Y_1[h,t,d] = Y_0[h,t,d] · α_1[h,t] + Σ_s E_1[h,t] V_1[k,d]"
    assert formula(f"{attn}.lse") == "lse[h,t] = m_1[h,t] + ln(l_1[h,t])"
    assert formula(f"{attn}.z") == "Z[h,t,d] = Y_1[h,t,d] / l_1[h,t]"

"""What must hold of a transformer whatever its weights are."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.base.names import describe
from pellucid.config import ModelConfig
from pellucid.parts.masks import MaskConfig
from pellucid.parts.masks.causal import Causal
from pellucid.parts.masks.none import NoMask
from pellucid.parts.positions.none import NoPositions
from pellucid.parts.positions.rope import Rope
from pellucid.reference.op import Array
from pellucid.reference.ops.rotate import rotate
from pellucid.reference.ops.softmax import softmax
from pellucid.reference.tape import Tape
from pellucid.reference.training import Weights, forward
from pellucid.reference.transformer import cache
from pellucid.verification.mismatch import CACHED_AGAINST_FULL, Mismatch, find_first_mismatch
from tests.reference.models import CONFIGS, weights

ROUNDING = 1e-12
IDS = np.array([[1, 3, 1, 0], [0, 2, 4, 4]])
TARGETS = np.array([[3, -100, 0, 2], [2, 4, 4, 1]])
CAUSAL = {name: config for name, config in CONFIGS.items() if config.mask == Causal()}
HEADS = ModelConfig(vocab_size=5, context_length=8, n_layer=1, n_head=4, n_kv_head=2, d_model=8, d_ff=8)

few = settings(max_examples=10, deadline=None, derandomize=True)
seeds = st.integers(0, 2**32 - 1)
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
every_causal_config = pytest.mark.parametrize("config", CAUSAL.values(), ids=CAUSAL)
layouts = pytest.mark.parametrize("layout", ["halves", "pairs"])


def silenced(config: ModelConfig, *layers: str) -> dict[str, Array]:
    """Weights in which these linear layers give nothing."""
    values = weights(config)
    return {name: 0 * w if any(layer in name for layer in layers) else w for name, w in values.items()}


def backpropagated(config: ModelConfig, values: Weights, ids: Any, targets: Any, **more: Any) -> Tape:
    tape = forward(config, values, ids, targets, **more)
    tape.backward(tape.ref("loss"))
    return tape


def window(tape: Tape, start: int, stop: int) -> dict[str, Array]:
    """Every forward value at the positions from start to stop, looking no further than stop."""
    found = {}
    for name in (*tape.steps, *tape.aliases):
        about = None if name.startswith("d.") else describe(name)
        if about and {"t", "s"} & set(about.axes):
            now = {"t": slice(start, stop), "s": slice(0 if "t" in about.axes else start, stop)}
            found[name] = tape[name][tuple(now.get(axis, slice(None)) for axis in about.axes)]
    return found


def parted(got: Any, wanted: dict[str, Any], tolerance: float = ROUNDING) -> Mismatch | None:
    return find_first_mismatch(got, wanted, tolerance)


# ---- order and time


def mixer(mask: MaskConfig, n_layer: int = 2) -> ModelConfig:
    return dataclasses.replace(CONFIGS["llama"], positions=NoPositions(), mask=mask, n_layer=n_layer)


@few
@given(order=st.permutations(range(4)), seed=seeds)
def test_without_mask_and_positions_a_permutation_of_tokens_permutes_the_logits(
    order: list[int], seed: int
) -> None:
    config = mixer(NoMask())
    straight = forward(config, weights(config, seed), IDS)["logits"]
    permuted = forward(config, weights(config, seed), IDS[:, order])["logits"]
    assert parted({"logits": permuted}, {"logits": straight[:, order]}) is None


@pytest.mark.parametrize(
    ("mask", "n_layer", "moves"), [(NoMask(), 2, False), (Causal(), 1, False), (Causal(), 2, True)]
)
def test_order_of_earlier_tokens_reaches_the_last_only_by_a_mask_and_two_layers(
    mask: MaskConfig, n_layer: int, moves: bool
) -> None:
    config = mixer(mask, n_layer)
    straight = forward(config, weights(config), [[1, 3, 2, 0]])["logits"][:, -1]
    permuted = forward(config, weights(config), [[3, 2, 1, 0]])["logits"][:, -1]
    assert bool(np.abs(straight - permuted).max() > 1e-3) is moves
    assert (parted({"last": permuted}, {"last": straight}) is not None) is moves


@every_causal_config
def test_future_token_does_not_change_past_values(config: ModelConfig) -> None:
    before = forward(config, weights(config), IDS, TARGETS)
    other = np.hstack([IDS[:, :3], 4 - IDS[:, 3:]])
    after = forward(config, weights(config), other, TARGETS)
    past = window(after, 0, 3)
    for name, value in window(before, 0, 3).items():
        assert np.array_equal(value, past[name]), name
    assert not np.array_equal(before["logits"], after["logits"])


@pytest.mark.parametrize("name", [name for name, config in CONFIGS.items() if config.mlp.form != "none"])
def test_feed_forward_does_not_mix_positions(name: str) -> None:
    """With silent attention, a token moves its own position's stream and no other."""
    config = CONFIGS[name]
    values = silenced(config, "o_proj")
    ids = np.hstack([IDS[:, :1], 4 - IDS[:, 1:2], IDS[:, 2:]])
    before, after = (forward(config, values, given)["blocks.1.resid_post"] for given in (IDS, ids))
    assert list((before != after).any(axis=(0, 2))) == [False, True, False, False]


# ---- rotary positions


@layouts
@few
@given(seed=seeds, shift=st.integers(1, 500), base=st.sampled_from([100.0, 10_000.0]))
def test_rotary_scores_depend_on_the_distance_only(layout: str, seed: int, shift: float, base: float) -> None:
    q, k = np.random.default_rng(seed).standard_normal((2, 1, 6))

    def scores(first: int) -> Array:
        rotation = Rope(base=base, layout=layout).rotation(np.arange(first, first + 4), 6)
        rotated = [rotate.forward(np.repeat(x, 4, axis=0), rotation.angles, layout=layout) for x in (q, k)]
        return rotated[0] @ rotated[1].T

    here = scores(0)
    assert parted({"scores": scores(shift)}, {"scores": here}, 1e-11) is None
    for distance in range(-3, 4):
        assert np.ptp(np.diagonal(here, distance)) < 1e-12
    assert np.ptp(here) > 1e-6


@layouts
@few
@given(seed=seeds, positions=st.lists(st.integers(0, 10_000), min_size=1, max_size=5))
def test_rotation_keeps_the_norm_of_every_pair(layout: str, seed: int, positions: list[int]) -> None:
    x = np.random.default_rng(seed).standard_normal((len(positions), 6))
    rotated = rotate.forward(x, Rope().rotation(np.array(positions), 6).angles, layout=layout)
    shape, axis = ((-1, 2, 3), 1) if layout == "halves" else ((-1, 3, 2), 2)
    sizes = [np.linalg.norm(y.reshape(shape), axis=axis) for y in (rotated, x)]
    assert parted({"norms": sizes[0]}, {"norms": sizes[1]}) is None


# ---- heads


def repeated(values: Weights, config: ModelConfig, times: int) -> dict[str, Array]:
    """The weights of a model in which every key head stands `times` times."""
    widened = dict(values)
    for name in ("k_proj", "v_proj"):
        key = f"blocks.0.attn.{name}.weight"
        heads = values[key].reshape(config.n_kv_head, config.d_head, config.d_model)
        widened[key] = np.repeat(heads, times, axis=0).reshape(-1, config.d_model)
    return widened


@pytest.mark.parametrize("kv_heads", [1, 2, 4], ids=["MQA", "GQA", "MHA"])
def test_query_heads_read_the_key_head_of_their_group(kv_heads: int) -> None:
    config = dataclasses.replace(HEADS, n_kv_head=kv_heads)
    tape = forward(config, weights(config), IDS)
    q, k, v, pattern = (tape[f"blocks.0.attn.{name}"] for name in ("q_rot", "k_rot", "v", "pattern"))
    assert k.shape[1] == v.shape[1] == kv_heads
    for h, group in enumerate(np.arange(kv_heads).repeat(4 // kv_heads)):
        alone = {
            "scores": q[:, h] @ k[:, group].swapaxes(1, 2) / np.sqrt(config.d_head),
            "z": pattern[:, h] @ v[:, group],
        }
        assert parted({name: tape[f"blocks.0.attn.{name}"][:, h] for name in alone}, alone) is None


@pytest.mark.parametrize("kv_heads", [1, 2], ids=["MQA", "GQA"])
def test_shared_key_heads_equal_the_same_heads_repeated(kv_heads: int) -> None:
    config = dataclasses.replace(HEADS, n_kv_head=kv_heads)
    full = dataclasses.replace(HEADS, n_kv_head=4)
    values = weights(config)
    shared = forward(config, values, IDS)
    spread = forward(full, repeated(values, config, 4 // kv_heads), IDS)
    names = ("blocks.0.attn.scores", "blocks.0.attn.pattern", "blocks.0.attn.z", "logits")
    assert parted(spread, {name: shared[name] for name in names}) is None


@pytest.mark.parametrize("kv_heads", [1, 2], ids=["MQA", "GQA"])
def test_shared_key_heads_gather_the_gradients_of_their_copies(kv_heads: int) -> None:
    config = dataclasses.replace(HEADS, n_kv_head=kv_heads)
    full = dataclasses.replace(HEADS, n_kv_head=4)
    values = weights(config)
    shared = backpropagated(config, values, IDS, TARGETS)
    spread = backpropagated(full, repeated(values, config, 4 // kv_heads), IDS, TARGETS)
    name = "d.blocks.0.attn.k"
    summed = spread[name].reshape(2, kv_heads, -1, 4, config.d_head).sum(axis=2)
    assert parted({name: summed}, {name: shared[name]}) is None


@few
@given(seed=seeds)
def test_heads_writing_one_by_one_equal_their_concatenation_times_w_o(seed: int) -> None:
    values = weights(HEADS, seed)
    tape = forward(HEADS, values, IDS)
    z, w_o = tape["blocks.0.attn.z"], values["blocks.0.attn.o_proj.weight"].T
    rows = w_o.reshape(HEADS.n_head, HEADS.d_head, HEADS.d_model)
    one_by_one = sum(z[:, h] @ rows[h] for h in range(HEADS.n_head))
    concatenated = np.concatenate([z[:, h] for h in range(HEADS.n_head)], axis=-1) @ w_o
    written = {"blocks.0.attn_out": tape["blocks.0.attn_out"]}
    assert parted({"blocks.0.attn_out": one_by_one}, written) is None
    assert parted({"blocks.0.attn_out": concatenated}, written) is None


@pytest.mark.parametrize("name", [name for name, config in CONFIGS.items() if config.residual.values])
def test_zero_output_projections_make_a_block_the_identity(name: str) -> None:
    config = CONFIGS[name]
    tape = forward(config, silenced(config, "o_proj", "down_proj"), IDS)
    for layer in range(config.n_layer):
        assert np.array_equal(tape[f"blocks.{layer}.resid_post"], tape["positioned"])


@few
@given(seed=seeds, shift=st.floats(-1000, 1000))
def test_softmax_does_not_see_a_shift(seed: int, shift: float) -> None:
    scores = np.random.default_rng(seed).standard_normal((3, 5))
    wanted = {"p": softmax.forward(scores)}
    assert parted({"p": softmax.forward(scores + shift)}, wanted) is None


# ---- caching, padding, batches


@every_causal_config
@pytest.mark.parametrize("calls", [(1, 1, 1, 1), (2, 1, 1), (3, 1), (1, 3), (2, 2)], ids=str)
def test_cached_calls_equal_one_full_call(config: ModelConfig, calls: tuple[int, ...]) -> None:
    values = weights(config)
    full = forward(config, values, IDS)
    past, start = None, 0
    for length in calls:
        stop = start + length
        tape = forward(config, values, IDS[:, start:stop], past=past)
        assert parted(tape, window(full, start, stop), CACHED_AGAINST_FULL) is None
        past, start = cache(tape, config), stop
    assert parted(past, cache(full, config), CACHED_AGAINST_FULL) is None


@every_config
def test_right_padding_changes_nothing_for_real_tokens(config: ModelConfig) -> None:
    values, real = weights(config), np.array([[1, 1, 1, 0]] * 2)
    short = backpropagated(config, values, IDS[:, :3], TARGETS[:, :3])
    targets = np.hstack([TARGETS[:, :3], [[-100], [-100]]])
    padded = backpropagated(config, values, IDS, targets, padding=real)
    assert parted(window(padded, 0, 3), window(short, 0, 3)) is None
    gradients = {f"d.{name}": short[f"d.{name}"] for name in config.parameters()}
    assert parted(padded, {"loss": short["loss"]} | gradients) is None


@every_config
def test_padding_tokens_get_exactly_no_gradient(config: ModelConfig) -> None:
    config = dataclasses.replace(config, vocab_size=9)
    ids, targets = np.array([[1, 3, 8, 8], [0, 2, 4, 8]]), [[3, 0, -100, -100], [2, 4, 1, -100]]
    tape = backpropagated(config, weights(config), ids, targets, padding=ids != 8)
    read = "d.embed.weight.via.embedded"
    gradient = tape[read if read in tape else "d.embed.weight"]
    assert (gradient[8] == 0).all()
    assert (gradient[[0, 1, 2, 3, 4]] != 0).any(axis=-1).all()
    assert (tape["d.embedded"][ids == 8] == 0).all()


@every_config
def test_fully_masked_row_gives_numbers_forward_and_backward(config: ModelConfig) -> None:
    """The first sequence is padded on the left, the second is nothing but padding."""
    tape = backpropagated(
        config, weights(config), IDS, TARGETS, padding=np.array([[0, 1, 1, 1], [0, 0, 0, 0]])
    )
    blind = np.isneginf(tape["blocks.0.attn.masked"]).all(axis=-1)
    assert blind[1].all()
    assert blind[0, :, 0].all() == (config.mask == Causal())
    assert (tape["blocks.0.attn.pattern"][blind] == 0).all()
    for name, value in tape.values.items():
        forbidden = np.isneginf(value) & (tape.roles[name] == "act" and name.endswith(".masked"))
        assert (np.isfinite(value) | forbidden).all(), name


@every_config
def test_batch_rows_equal_single_rows(config: ModelConfig) -> None:
    values, real = weights(config), np.array([[1, 1, 1, 1], [1, 1, 0, 1]])
    batch = forward(config, values, IDS, TARGETS, padding=real)
    for row in range(2):
        one = slice(row, row + 1)
        single = forward(config, values, IDS[one], TARGETS[one], padding=real[one])
        axes = {name: describe(name).axes for name in batch.steps}
        wanted = {name: batch[name][one] for name in axes if "b" in axes[name]}
        assert parted(single, wanted) is None


@every_config
def test_loss_is_the_mean_over_counted_targets(config: ModelConfig) -> None:
    tape = forward(config, weights(config), IDS, TARGETS)
    rows, places = np.nonzero(TARGETS != -100)
    nll = -np.log(tape["probs"][rows, places, TARGETS[rows, places]])
    assert parted({"loss": tape["loss"]}, {"loss": np.mean(nll)}) is None
    assert tape["nll"][0, 1] == 0


@every_config
def test_ignored_target_gives_its_logits_no_gradient(config: ModelConfig) -> None:
    tape = backpropagated(config, weights(config), IDS, TARGETS)
    assert (tape["d.logits"][0, 1] == 0).all()
    assert (tape["d.logits"][TARGETS != -100] != 0).all()


# ---- the invariants of the glossary


@every_config
def test_every_invariant_of_the_glossary_holds(config: ModelConfig) -> None:
    tape = forward(config, weights(config), IDS, TARGETS)
    claims = {name: describe(name).invariant for name in tape.steps if describe(name).invariant}
    expected = {"rows sum to 1", "keeps norms"} if isinstance(config.positions, Rope) else {"rows sum to 1"}
    assert set(claims.values()) == expected
    for name, claim in claims.items():
        value, before = tape[name], tape[tape.steps[name].inputs[0]]
        if claim == "rows sum to 1":
            assert value.min() >= 0
            assert parted({name: value.sum(axis=-1)}, {name: np.ones(value.shape[:-1])}) is None
        else:
            wanted = np.linalg.norm(before, axis=-1)
            assert parted({name: np.linalg.norm(value, axis=-1)}, {name: wanted}) is None

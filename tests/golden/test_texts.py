"""The worked examples of the source texts, with the numbers of the errata, run on the tape."""

import dataclasses
import tomllib
from typing import Any

import numpy as np
import pytest

from pellucid.base.names import IGNORE_INDEX
from pellucid.config import preset, preset_text
from pellucid.parts.masks.causal import Causal
from pellucid.parts.masks.none import NoMask
from pellucid.parts.mlps import Relu
from pellucid.parts.norms import LayerNormConfig
from pellucid.parts.placements import Post
from pellucid.parts.positions.rope import Rope
from pellucid.parts.positions.sinusoidal import Sinusoidal
from pellucid.parts.residuals import PlainResidual
from pellucid.reference.loss import loss
from pellucid.reference.mlps import apply_mlp
from pellucid.reference.norms import normalize
from pellucid.reference.op import Array
from pellucid.reference.ops.activations import gelu
from pellucid.reference.ops.arithmetic import power
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.ops.losses import mean_squared_error
from pellucid.reference.ops.masks import mask
from pellucid.reference.ops.softmax import softmax
from pellucid.reference.optimizers import update
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward, train
from pellucid.reference.transformer import add_residual

A, B, C, D = range(4)


def near(digits: int, wanted: Any) -> Any:
    """Equal to as many decimals as the example prints."""
    return pytest.approx(np.array(wanted), rel=0, abs=0.5001 * 10.0**-digits)


# ---- transformer-math


def tiny_attention() -> Tape:
    tape = Tape()
    q = tape.parameter("Q", [[1, 0, 1], [0, 1, 1]])
    k = tape.parameter("K", [[1, 1, 0], [1, 0, 1]])
    v = tape.parameter("V", [[2, 0, 1], [1, 1, 0]])
    s = tape("S", einsum, q, k, spec="td,sd->ts", scale=3**-0.5)
    p = tape("P", softmax, s)
    o = tape("O", einsum, p, v, spec="ts,sd->td")
    given = tape.constant("given", [[1, 0, 1], [0, 1, 0]])
    tape.backward(tape("L", einsum, o, given, spec="td,td->"))
    return tape


def test_tiny_attention_forward() -> None:
    """transformer-math 13.1 (errata 1.2, 33)."""
    tape = tiny_attention()
    assert tape["S"] == near(3, [[0.577, 1.155], [0.577, 0.577]])
    assert tape["P"] == near(5, [[0.35954, 0.64046], [0.5, 0.5]])
    assert tape["O"] == near(3, [[1.360, 0.640, 0.360], [1.5, 0.5, 0.5]])


def test_tiny_attention_backward() -> None:
    """transformer-math 13.2 (errata 1.2, 33)."""
    tape = tiny_attention()
    assert tape["d.O"] == near(12, [[1, 0, 1], [0, 1, 0]])
    assert tape["d.V"] == near(3, [[0.360, 0.5, 0.360], [0.640, 0.5, 0.640]])


def test_ten_descents_of_a_square() -> None:
    """transformer-math, the descent of x² from 3 at rate 0.1 (errata 1.2, 1)."""
    x, path = 3.0, []
    for _ in range(11):
        tape = Tape()
        tape.backward(tape("f", power, tape.parameter("x", x), exponent=2))
        path.append((x, float(tape["f"])))
        update(tape, "sgd", lr=0.1)
        x = float(tape["x@1"])
    assert path[1] == near(2, [2.4, 5.76])
    assert path[10] == near(4, [0.3221, 0.1038])


def test_mean_squared_error_has_its_factor_two() -> None:
    """transformer-math, back-propagation of the squared error (errata 1.2, 5)."""
    tape = Tape()
    predicted = tape.parameter("predicted", [1.0, 2.0, 5.0, 4.0])
    wanted = tape.constant("wanted", [0.0, 2.0, 3.0, 4.0])
    tape.backward(tape("loss", mean_squared_error, predicted, wanted, samples=4))
    assert tape["loss"] == 5 / 4
    assert list(tape["d.predicted"]) == [2 * 1 / 4, 0, 2 * 2 / 4, 0]


@pytest.mark.parametrize("scores", [[2.0, 1.0], [5.0, 4.0]])
def test_softmax_sees_only_differences(scores: list[float]) -> None:
    """transformer-math, scores 5 and 4 against 2 and 1 (errata 1.2, 2)."""
    assert softmax.forward(np.array(scores)) == near(4, [0.7311, 0.2689])


def test_gelu_keeps_an_input_with_the_normal_probability() -> None:
    """transformer-math, what GELU keeps at −2, 0, 2 (errata 1.2, 24); at 0 its slope says it."""
    tape = Tape()
    x = tape.parameter("x", [-2.0, 0.0, 2.0])
    kept = tape("kept", gelu, x)
    tape.backward(tape("sum", einsum, kept, spec="i->"))
    assert tape["kept"][[0, 2]] / tape["x"][[0, 2]] == near(3, [0.023, 0.977])
    assert tape["kept"][1] == 0
    assert tape["d.x"][1] == 0.5


def test_rope_frequencies_come_from_the_head_width() -> None:
    """transformer-math, RoPE's angles: pair 31 of 32 at position 1 (errata 1.2, 21)."""
    angles = Rope().rotation(np.array([1]), 64).angles
    assert angles.shape == (1, 32)
    assert angles[0, 31] == pytest.approx(1.3e-4, abs=0.05e-4)


@pytest.mark.parametrize("gradient", [1e-3, -40.0])
def test_first_adamw_update_is_the_rate_itself(gradient: float) -> None:
    """transformer-math, Adam's first step (errata 1.2, 8): uncorrected it would be 3.16 rates."""
    tape = Tape()
    x, slope = tape.parameter("x", [7.0]), tape.constant("slope", [gradient])
    tape.backward(tape("f", einsum, x, slope, spec="i,i->"))
    update(tape, "adamw", lr=0.01, betas=(0.9, 0.999), weight_decay=0.0)
    assert tape["x@1"] - tape["x"] == pytest.approx(-0.01 * np.sign(gradient), rel=1e-4)
    assert abs(tape["x.m@1"]) / np.sqrt(tape["x.v@1"]) == near(2, [3.16])


# ---- transformer-flow


def test_logit_gradient_is_divided_by_the_counted_positions() -> None:
    """transformer-flow, the gradient of the mean loss (errata 1.1, 21)."""
    tape = Tape()
    logits = tape.parameter("logits", np.array([[[1.0, 2.0, 0.5], [0.0, 1.0, 3.0]]]))
    tape.backward(loss(tape, logits, [[1, 0]]))
    hits = np.array([[[0, 1, 0], [1, 0, 0]]])
    assert tape["d.logits"] == near(12, (softmax.forward(tape["logits"]) - hits) / 2)


# ---- transformer-guide


def layer_norm(row: list[float], eps: float = 1e-5) -> Array:
    tape = Tape()
    tape.parameter("norm.weight", np.ones(len(row)))
    normalize(tape.scope("norm"), tape.parameter("x", [[row]]), LayerNormConfig(eps=eps))
    return tape["norm.out"][0, 0]


def test_layer_norm_divides_by_the_population_deviation() -> None:
    """transformer-guide, the LayerNorm example (errata 1.5, 10)."""
    assert layer_norm([0.5, 2.3, -1.2, 5.6]) == near(3, [-0.516, 0.198, -1.191, 1.509])


def test_layer_norm_of_two_channels_is_a_sign() -> None:
    """understanding-transformers, Example 6 (errata 1.0, 3): d = 2 leaves only which one is larger."""
    assert layer_norm([3.0, 1.0]) == near(4, [1, -1])
    assert layer_norm([-0.2, 70.0]) == near(4, [-1, 1])


@pytest.mark.parametrize("row", [[0.0, 0.0, 2.0, 2.0], [1.0, 1.0, 5.0, 5.0]])
def test_layer_norm_of_two_levels_is_plus_and_minus_one(row: list[float]) -> None:
    """The teaching vectors of the LayerNorm lesson; exact where eps is 0."""
    assert list(layer_norm(row, eps=0.0)) == [-1, -1, 1, 1]
    assert layer_norm(row) == near(5, [-1, -1, 1, 1])


def test_sinusoidal_rows_of_eight_channels() -> None:
    """transformer-guide, the printed position rows, which are those of d = 8 (errata 1.5, 4)."""
    rows = Sinusoidal().rows(np.arange(3), 8)
    assert rows[0] == near(12, [0, 1] * 4)
    assert rows[1] == near(3, [0.841, 0.540, 0.100, 0.995, 0.010, 1.000, 0.001, 1.000])
    assert rows[2, :4] == near(2, [0.91, -0.42, 0.20, 0.98])


def test_sinusoidal_second_pair_at_the_guides_own_width() -> None:
    """transformer-guide, position 1 at the C = 192 of its text (errata 1.5, 4)."""
    assert Sinusoidal().rows(np.array([1]), 192)[0, 2:4] == near(3, [0.789, 0.615])


def test_masked_softmax_of_the_guides_score_table() -> None:
    """transformer-guide, the table of attention probabilities (errata 1.5, 8), unscaled."""
    scores = np.array(
        [[8.2, 2.1, 0.5, 1.3], [2.3, 9.1, 4.2, 3.1], [0.8, 4.5, 7.8, 2.2], [1.1, 3.2, 2.4, 8.9]]
    )
    tape = Tape()
    allowed = tape.constant("allowed", Causal().compute_mask(np.arange(4), np.arange(4)))
    tape("P", softmax, tape("M", mask, tape.constant("S", scores), allowed))
    wanted = [[1, 0, 0, 0], [0.001, 0.999, 0, 0], [0.001, 0.036, 0.964, 0], [0.000, 0.003, 0.001, 0.995]]
    assert tape["P"] == near(3, wanted)
    assert (tape["P"][np.triu_indices(4, 1)] == 0).all()


# ---- understanding-transformers: A B C D with 0.1 · identity, both positions seeing both

TOYAI = dataclasses.replace(preset("abcd"), mask=NoMask())
TOYAI_WEIGHTS = {
    "embed.weight": np.array([[1.0, 0], [0, 1], [1, 1], [0, 0]]),
    "blocks.0.attn.q_proj.weight": 0.1 * np.eye(2),
    "blocks.0.attn.k_proj.weight": 0.1 * np.eye(2),
    "blocks.0.attn.v_proj.weight": 0.1 * np.eye(2),
    "unembed.weight": np.array([[0.1, 0, 0, 0], [0, 0, 0.1, 0]]).T,
}
PATTERNS = [[A, B], [A, A], [B, A]], [[IGNORE_INDEX, C], [IGNORE_INDEX, D], [IGNORE_INDEX, C]]
FOUR_MATRICES = "[!e]*"  # all but embed.weight, which the examples hold fixed


def test_toyai_forward_of_a_b() -> None:
    """understanding-transformers, Example 1 (errata 1.7)."""
    tape = forward(TOYAI, TOYAI_WEIGHTS, [[A, B]])
    pattern = np.array([[0.501768, 0.498232], [0.498232, 0.501768]])
    assert tape["blocks.0.attn.pattern"][0, 0] == near(6, pattern)
    assert tape["blocks.0.attn_out"][0] == near(7, 0.1 * pattern)
    assert tape["logits"][0, 1] == near(7, [0.0049823, 0, 0.0050177, 0])
    assert tape["probs"][0, 1] == near(6, [0.250621, 0.249375, 0.250629, 0.249375])


def test_toyai_single_step_raises_the_target() -> None:
    """understanding-transformers, Example 2 (errata 1.7, E2b and E2c)."""
    before, after = train(
        TOYAI, TOYAI_WEIGHTS, [[A, B]], [[IGNORE_INDEX, C]], "sgd", 1, lr=0.1, only="unembed.weight"
    )
    assert before["loss"] == near(6, 1.383780)
    updated = before["unembed.weight@1"].T
    assert updated[0] == near(5, [0.09875, -0.00124, 0.00373, -0.00124])
    assert updated[1] == near(5, [-0.00126, -0.00125, 0.10376, -0.00125])
    assert after["probs"][0, 1, C] == near(6, 0.250723)
    assert after["loss"] == near(6, 1.383405)


def test_toyai_gradient_of_the_values() -> None:
    """understanding-transformers, Example 3 (errata 1.7, E3c and E3d)."""
    tape = forward(TOYAI, TOYAI_WEIGHTS, [[A, B]], [[IGNORE_INDEX, C]])
    tape.backward(tape.ref("loss"))
    assert tape["d.blocks.0.attn_out"][0, 1] == near(4, [0.0251, -0.0749])
    assert tape["d.blocks.0.attn.v"][0, 0] == near(6, [[0.012487, -0.037336], [0.012575, -0.037601]])


def test_toyai_batch_of_patterns() -> None:
    """understanding-transformers, Example 4 (errata 1.7, E4a, E4c and E4e)."""
    before, after = train(TOYAI, TOYAI_WEIGHTS, *PATTERNS, "sgd", 1, lr=0.1, only="unembed.weight")
    assert before["probs"][1, 1] == near(5, [0.25188, 0.24937, 0.24937, 0.24937])
    assert before["nll"][1, 1] == near(4, 1.3888)
    assert 3 * before["d.blocks.0.attn_out"][1, 1] == near(4, [0.0252, 0.0249])
    assert (before["loss"], after["loss"]) == near(5, [1.38547, 1.38527])
    *_, all_four = train(TOYAI, TOYAI_WEIGHTS, *PATTERNS, "sgd", 1, lr=0.1, only=FOUR_MATRICES)
    assert all_four["loss"] == near(5, 1.38515)


@pytest.mark.parametrize(("lr", "updates"), [(0.1, 158), (1.0, 17), (3.0, 8)])
def test_toyai_batch_learns_all_three_patterns(lr: float, updates: int) -> None:
    """understanding-transformers, Example 4 trained with all four matrices (errata 1.7, E4f)."""
    tapes = train(TOYAI, TOYAI_WEIGHTS, *PATTERNS, "sgd", updates, lr=lr, only=FOUR_MATRICES)
    right = [list(tape["probs"][:, 1].argmax(axis=-1)) == [C, D, C] for tape in tapes]
    assert right == [False] * updates + [True]


MIXING = np.array([[0.2, 0.1], [0.1, 0.2]])
"""W_1 and W_2 of Examples 5 and 6; symmetric, so stored as it is printed."""


def test_toyai_feed_forward_of_two_different_rows() -> None:
    """understanding-transformers, Example 5 (errata 1.7, E5a): a residual round the feed-forward alone."""
    tape, heads = Tape(), forward(TOYAI, TOYAI_WEIGHTS, [[A, B]])["blocks.0.attn_out"]
    for name in ("up_proj", "down_proj"):
        tape.parameter(f"block.mlp.{name}.weight", MIXING)
    x, block = tape.constant("x", heads), tape.scope("block")
    add_residual(block, "out", x, apply_mlp(block, x, Relu(), None), PlainResidual())
    assert tape["x"][0, 0] == near(5, [0.05018, 0.04982])
    assert tape["block.out"][0] == near(6, [[0.054679, 0.054321], [0.054321, 0.054679]])


@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_toyai_norm_of_two_near_channels(eps: float) -> None:
    """understanding-transformers, Example 6 (errata 1.7, E6a): ±1, or visibly less where eps is as large as
    the variance."""
    exact = forward(TOYAI, TOYAI_WEIGHTS, [[A, B]])["blocks.0.attn_out"][0, 1]
    rounded, unrounded = (0.894, 0.870) if eps else (1, 1)
    assert layer_norm([0.0498, 0.0502], eps) == near(3, [-rounded, rounded])
    assert layer_norm(list(exact), eps) == near(3, [-unrounded, unrounded])


TOYAI_BLOCK = dataclasses.replace(
    TOYAI, norm=LayerNormConfig(), placement=Post(), mlp=Relu(), d_ff=2, residual=PlainResidual()
)
TOYAI_BLOCK_WEIGHTS = {
    **TOYAI_WEIGHTS,
    "blocks.0.attn_post_norm.weight": np.ones(2),
    "blocks.0.mlp.up_proj.weight": MIXING,
    "blocks.0.mlp.down_proj.weight": MIXING,
    "blocks.0.mlp_post_norm.weight": np.ones(2),
}


def test_toyai_block_after_its_norm() -> None:
    """understanding-transformers, Example 6 (errata 1.7, E6b): ±1, not the ±0.707 of N − 1."""
    tape = forward(TOYAI_BLOCK, TOYAI_BLOCK_WEIGHTS, [[A, B]])
    assert tape["blocks.0.attn_sum"][0] == near(4, [[1.0502, 0.0498], [0.0498, 1.0502]])
    assert tape["blocks.0.resid_mid"][0] == near(4, [[1, -1], [-1, 1]])
    assert tape["blocks.0.mlp_out"][0] == near(4, [[0.02, 0.01], [0.01, 0.02]])


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [
        ([[0.1, 0, 0.1, 0], [0, 0.1, 0, 0.1]], [0.2251, 0.2749, 0.2251, 0.2749]),
        ([[0.1, 0, 0, 0], [0, 0, 0.1, 0]], [0.2256, 0.2494, 0.2756, 0.2494]),
    ],
    ids=["of the worksheet", "of the program"],
)
def test_toyai_block_predicts(columns: list[list[float]], wanted: list[float]) -> None:
    """understanding-transformers, Example 6 (errata 1.7, E6c), with each of its two unembeddings."""
    weights = {**TOYAI_BLOCK_WEIGHTS, "unembed.weight": np.array(columns).T}
    assert forward(TOYAI_BLOCK, weights, [[A, B]])["probs"][0, 1] == near(4, wanted)


# ---- the teaching model

ABCD = {name: np.array(rows) for name, rows in tomllib.loads(preset_text("abcd"))["weights"].items()}


def test_abcd_forward_and_one_step() -> None:
    """The teaching model on "A B", target C, and one step on the unembedding at rate 1."""
    before, after = train(
        preset("abcd"), ABCD, [[A, B]], [[IGNORE_INDEX, C]], "sgd", 1, lr=1.0, only="unembed.weight"
    )
    assert before["blocks.0.attn.pattern"][0, 0] == near(5, [[1, 0], [0.19557, 0.80443]])
    assert before["probs"][0, 1] == near(5, [0.17616, 0.32384, 0.32384, 0.17616])
    assert before["loss"] == near(5, 1.12750)
    assert after["probs"][0, 1] == near(5, [0.14371, 0.23876, 0.47381, 0.14371])
    assert after["loss"] == near(5, 0.74694)

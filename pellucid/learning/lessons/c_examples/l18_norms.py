"""Lesson 18: LayerNorm and RMSNorm of four rows, forward and backward, and BatchNorm beside them."""

from typing import Any

import numpy as np

from pellucid import ops
from pellucid.explanation.trace import Trace
from pellucid.learning.lessons.pictures import draw_norm_axes, draw_row
from pellucid.learning.lessons.program import print_example
from pellucid.parts.norms import LayerNormConfig, NormConfig, RmsNormConfig
from pellucid.reference.norms import normalize
from pellucid.reference.tape import Tape, TapeScope
from pellucid.report.figure import Figure, make_figure

ROWS = np.array([[0, 0, 2, 2], [1, 1, 5, 5], [0.5, 2.3, -1.2, 5.6], [0, 0, 0.02, 0.02]])
"""Four rows of four channels. The first two have one answer, and the last is as small as eps."""
PAIRS = np.array([[3, 1], [-0.2, 70], [1.0498, 0.0502]])
"""Rows of two channels; the last is a row of the original Example 6."""
GAIN, SHIFT, ARRIVING = [2, 1, 1, 1], [0, 0, 0, 1], [1, 0, 0, -1]
EPS, FACTOR = 1e-5, 10
WORDS = {
    "weight": ("c", "γ", "gain of each channel"),
    "bias": ("c", "β", "shift of each channel"),
    "mean": ("t 1", "μ", "mean of the row"),
    "centered": ("t c", "X̄", "centered row: the mean subtracted"),
    "rstd": ("t 1", "r", "reciprocal of the spread: 1 / √(mean square + eps)"),
    "normed": ("t c", "X̂", "normalized row: before gain and shift"),
    "out": ("t c", "Y", "output of the norm"),
}


def run(prompt: str = "", seed: int = 0) -> dict[str, Trace]:
    """Returns the runs of the lesson; the first is the one that the page is about. There is no prompt; other
    seeds than 0 draw other rows."""
    rows = draw_rows(seed) if seed else ROWS
    layer, rms = LayerNormConfig(EPS), RmsNormConfig(EPS)
    return {
        "layer": apply_norm(rows, layer),
        "rms": apply_norm(rows, rms),
        "tenfold": apply_norm(FACTOR * rows, layer),
        "pair": apply_norm(PAIRS, layer, [1, 1], [0, 0], [1, 0]),
        "batch": apply_batch_norm(rows),
        "fewer": apply_batch_norm(rows[:2]),
        "sample": apply_sample_norm(rows),
        "sample_pair": apply_sample_norm(PAIRS),
    }


def draw_rows(seed: int) -> Any:
    """Returns rows of halves, the last one a hundredth of such a row: as small as eps."""
    rows = np.random.default_rng(seed).integers(-4, 9, ROWS.shape) / 2
    rows[-1] /= 100
    return rows


def apply_norm(
    rows: Any, norm: NormConfig, gain: Any = GAIN, shift: Any = SHIFT, arriving: Any = ARRIVING
) -> Trace:
    """Returns the norm of each row and its gradients, where d.Y is `arriving` in every row; RMSNorm has no
    shift."""
    tape = Tape()
    x = tape.describe(tape.parameter("x", rows), "t c", "X", "input row")
    tape.parameter("norm.weight", gain)
    if isinstance(norm, LayerNormConfig):
        tape.parameter("norm.bias", shift)
    t = tape.scope("norm")
    out = normalize(t, x, norm)
    describe(t)
    add_spread(tape, norm)
    gradient = tape.constant("arriving", np.broadcast_to(arriving, x.shape))
    tape.describe(gradient, "t c", "dY", "gradient that arrives at each output")
    loss = tape("loss", ops.einsum, out, gradient, spec="tc,tc->")
    tape.backward(tape.describe(loss, "", "ℒ", "made-up loss: Σ dY ⊙ Y"))
    if isinstance(norm, LayerNormConfig):
        add_closed_form(tape)
    return Trace(tape, {"model": f"{norm.kind} of four rows"})


def add_spread(tape: Tape, norm: NormConfig) -> None:
    """Adds the variance of each row (the mean square, where the mean is not subtracted) and its root."""
    x = tape.ref("norm.centered" if isinstance(norm, LayerNormConfig) else "x")
    variance = tape("variance", ops.einsum, x, x, spec="tc,tc->t", scale=1 / x.shape[-1])
    tape.describe(variance, "t", "σ²", "mean square of the row: its variance, where it is centered")
    spread = tape("spread", ops.power, variance, exponent=0.5)
    tape.describe(spread, "t", "σ", "spread of the row: the root of its variance")


def add_closed_form(tape: Tape) -> None:
    """Adds the closed form of the gradient without its factor r: g − mean(g) − X̂ mean(g X̂), with g = dX̂."""
    g, x = tape.ref("d.norm.normed"), tape.ref("norm.normed")
    mean = tape("mean_g", ops.einsum, g, spec="tc->t1", scale=1 / x.shape[-1])
    product = tape("mean_gx", ops.einsum, g, x, spec="tc,tc->t1", scale=1 / x.shape[-1])
    along = tape("along", ops.einsum, x, product, spec="tc,t1->tc")
    bracket = tape("bracket", ops.subtract, tape("level", ops.subtract, g, mean), along)
    tape.describe(mean, "t 1", "mean(g)", "mean of the gradient of a normalized row")
    tape.describe(product, "t 1", "mean(g X̂)", "mean of that gradient times the normalized row")
    tape.describe(bracket, "t c", "dX / r", "gradient of the row, before the factor r")


def apply_batch_norm(rows: Any) -> Trace:
    """Returns BatchNorm's normalized rows: mean and spread of a channel over the rows, not of a row."""
    tape = Tape()
    x = tape.describe(tape.constant("x", rows), "t c", "X", "input row")
    columns = tape("columns", ops.einsum, x, spec="tc->ct")
    tape.describe(columns, "c t", "Xᵀ", "channels as rows")
    tape.parameter("norm.weight", np.ones(columns.shape[1]))
    out = normalize(tape.scope("norm"), columns, LayerNormConfig(EPS))
    back = tape("out", ops.einsum, out, spec="ct->tc")
    tape.describe(back, "t c", "Y", "output of BatchNorm, gain 1")
    return Trace(tape, {"model": "BatchNorm"})


def apply_sample_norm(rows: Any) -> Trace:
    """Returns the rows divided by the root of Σ / (N − 1), the estimate for a sample, without eps: a
    mistake."""
    tape = Tape()
    x = tape.describe(tape.constant("x", rows), "t c", "X", "input row")
    mean = tape("mean", ops.einsum, x, spec="tc->t1", scale=1 / x.shape[1])
    centered = tape("centered", ops.subtract, x, mean)
    square = tape("variance", ops.einsum, centered, centered, spec="tc,tc->t", scale=1 / (x.shape[1] - 1))
    tape.describe(square, "t", "s²", "sample variance: divided by N − 1")
    spread = tape.describe(tape("spread", ops.power, square, exponent=0.5), "t", "s", "sample spread")
    inverse = tape("inverse", ops.power, spread, exponent=-1)
    normed = tape("normed", ops.einsum, centered, inverse, spec="tc,t->tc")
    tape.describe(normed, "t c", "X̄/s", "centered row over the sample spread")
    return Trace(tape, {"model": "N − 1"})


def describe(t: TapeScope) -> None:
    """Gives the values of a norm their symbols."""
    for name, words in WORDS.items():
        if name in t:
            t.tape.describe(t.ref(name), *words)


def numbers() -> dict[str, float]:
    """Returns eps, the factor of the larger rows, and what r of the smallest row is without eps."""
    spread = run()["layer"].tape["spread"][3]
    return {"eps": EPS, "factor": FACTOR, "without_eps": float(1 / spread)}


def pictures() -> dict[str, Figure]:
    """Returns the third row before and after LayerNorm, and the cells that each norm takes together."""
    layer = run()["layer"]
    steps = {"X": "x", "X̄": "norm.centered", "X̂": "norm.normed"}
    row = {symbol: (layer, f"{name}[t=2]") for symbol, name in steps.items()}
    return {
        "line": make_figure("A row on the number line", draw_row(row, "the third row through LayerNorm")),
        "axes": make_figure("Which numbers are taken together", *draw_norm_axes(layer, "x")),
    }


if __name__ == "__main__":
    print_example(run)

"""Lesson 13: the forward pass of `abcd`, the same without 1/√D, and how query · key spreads with D."""

import numpy as np

import pellucid
from pellucid import ops
from pellucid.explanation.trace import Trace
from pellucid.learning.lessons.pictures import draw_graph, draw_grid
from pellucid.learning.lessons.program import print_example, vary_tokens
from pellucid.reference.tape import Tape
from pellucid.report.figure import Figure, make_figure

WIDTHS = (2, 16, 64, 256)
SAMPLES = 4_000
ORIGINAL = {
    "blocks.0.attn.q_proj.weight": [[0.1, 0.0], [0.0, 0.1]],
    "blocks.0.attn.k_proj.weight": [[0.1, 0.0], [0.0, 0.1]],
    "blocks.0.attn.v_proj.weight": [[0.1, 0.0], [0.0, 0.1]],
    "unembed.weight": [[0.1, 0.0], [0.0, 0.0], [0.0, 0.1], [0.0, 0.0]],
}
"""The weights of the published worksheets, whose effects are too small to see."""
VALUES = (
    "embedded",
    *(f"blocks.0.attn.{name}" for name in ("q", "k", "v", "scores", "pattern", "z")),
    "logits",
    "probs",
)
"""The values on the way from the embeddings to the probabilities."""


def run(prompt: str = "A B", seed: int = 0) -> dict[str, Trace]:
    """Returns the runs of the lesson; the first is the one that the page and the sheet are about."""
    prompt = vary_tokens(prompt, seed)
    forward = pellucid.trace("abcd", prompt)
    return {
        "forward": forward,
        "original": load_original().trace(prompt),
        "unscaled": omit_scale(forward),
        "spread": measure_spread(0.0, seed),
        "shifted": measure_spread(1.0, seed),
    }


def load_original() -> pellucid.Model:
    """Returns `abcd` with the weights of the published worksheets."""
    model = pellucid.load("abcd")
    weights = {name: np.array(value) for name, value in ORIGINAL.items()}
    return model.replace(weights={**model.weights, **weights})


def omit_scale(forward: Trace) -> Trace:
    """Returns the same attention and logits with query · key as the scores, not divided by √D."""
    known, tape = forward.tape, Tape()
    q, k, v = (tape.constant(name, known[f"blocks.0.attn.{name}"][0, 0]) for name in "qkv")
    scores = tape("scores", ops.einsum, q, k, spec="td,sd->ts")
    masked = tape("masked", ops.mask, scores, tape.constant("mask", known["mask"][0, 0]))
    pattern = tape("pattern", ops.softmax, masked)
    z = tape("z", ops.einsum, pattern, v, spec="ts,sd->td")
    unembed = tape.constant("unembed.weight", known["unembed.weight"])
    logits = tape("logits", ops.einsum, z, unembed, spec="td,vd->tv")
    probs = tape("probs", ops.softmax, logits)
    tape.describe(scores, "t s", "S", "attention scores without the scale: query · key")
    tape.describe(masked, "t s", "M", "masked attention scores")
    tape.describe(pattern, "t s", "P", "attention pattern")
    tape.describe(z, "t d", "Z", "head outputs")
    tape.describe(logits, "t v", "ℓ", "logits")
    tape.describe(probs, "t v", "p", "next-token probabilities")
    return Trace(tape, {"model": "abcd without the scale"}, forward.labels)


def measure_spread(mean: float, seed: int) -> Trace:
    """Returns the variance of q · k over random q and k with this mean and variance 1, for each of WIDTHS.

    One pair has as many channels as the largest width; a smaller width reads the first of them."""
    rng, largest = np.random.default_rng(seed), max(WIDTHS)
    tape = Tape()
    q, k = (tape.constant(name, rng.normal(mean, 1.0, (SAMPLES, largest))) for name in "qk")
    reads = tape.constant("reads", [[float(d < width) for d in range(largest)] for width in WIDTHS])
    width = tape("width", ops.einsum, reads, spec="wd->w")
    products = tape("products", ops.einsum, q, k, reads, spec="nd,nd,wd->wn")
    average = tape("average", ops.einsum, products, spec="wn->w", scale=1 / SAMPLES)
    centered = tape(
        "centered", ops.subtract, products, tape("rows", ops.einsum, average, spec="w->wn", n=SAMPLES)
    )
    variance = tape("variance", ops.einsum, centered, centered, spec="wn,wn->w", scale=1 / SAMPLES)
    scaled = tape(
        "scaled", ops.einsum, variance, tape("inverse", ops.power, width, exponent=-1), spec="w,w->w"
    )
    tape.describe(products, "w n", "q·k", "query · key")
    tape.describe(width, "w", "D", "channels of a query and of a key")
    tape.describe(variance, "w", "Var(q·k)", "variance of query · key")
    tape.describe(scaled, "w", "Var(q·k/√D)", "variance of query · key / √D")
    return Trace(tape, {"model": "random queries and keys"})


def pictures() -> dict[str, Figure]:
    """Returns the way from the embeddings to the probabilities, and the attention pattern."""
    forward = run()["forward"]
    graph = draw_graph(forward, VALUES, "each value with one row per position")
    return {
        "graph": make_figure("The forward pass, from the embeddings to the probabilities", graph),
        "pattern": make_figure("The attention pattern", draw_grid(forward, "blocks.0.attn.pattern")),
    }


if __name__ == "__main__":
    print_example(run)

"""Lesson 14: two updates of the unembedding of `abcd`, and learning rates from small to too large."""

from collections.abc import Sequence

import numpy as np

import pellucid
from pellucid import ops
from pellucid.explanation.trace import Trace
from pellucid.learning.lessons.c_examples.l13_forward import load_original
from pellucid.learning.lessons.pictures import draw_bars
from pellucid.learning.lessons.program import print_example, vary_tokens
from pellucid.reference.tape import Tape
from pellucid.report.chart import Axis, Chart, LegendKey, Series
from pellucid.report.figure import Figure, make_figure

TARGET = "C"
TRAINED = "unembed.weight"
RATE = 1.0
ORIGINAL_RATE = 0.1
SMALL_RATES = (1.0, 0.1, 0.01)
LARGE_RATES = (1.0, 6.0, 16.0)
CONTINUATIONS = ("C", "C", "A")
"""What follows the prompt in three texts: no weights can be right about all of them."""
UPDATES = 8


def run(prompt: str = "A B", seed: int = 0) -> dict[str, Trace]:
    """Returns the runs of the lesson; the first is the one that the page and the sheet are about."""
    prompt = vary_tokens(prompt, seed)
    original = load_original().trace(prompt, target=TARGET, update="sgd", lr=ORIGINAL_RATE, only=TRAINED)
    return {
        "update": train(prompt, TARGET, RATE, steps=2),
        "small": compare_falls(prompt, SMALL_RATES),
        "large": compare_losses(prompt, LARGE_RATES),
        "original": original,
    }


def train(prompts: str | Sequence[str], targets: str | Sequence[str], rate: float, steps: int) -> Trace:
    """Returns `steps` updates of the unembedding alone, with every number."""
    return pellucid.trace("abcd", prompts, target=targets, update="sgd", lr=rate, only=TRAINED, steps=steps)


def compare_falls(prompt: str, rates: Sequence[float]) -> Trace:
    """Returns how far one update lowers the loss at each rate, beside what the gradient alone predicts."""
    runs = [train(prompt, TARGET, rate, steps=1).tape for rate in rates]
    tape = Tape()
    rate = tape.constant("rate", rates)
    gradient = tape.constant("gradient", runs[0][f"d.{TRAINED}"])
    square = tape("square", ops.einsum, gradient, gradient, spec="vc,vc->")
    predicted = tape("predicted", ops.einsum, rate, square, spec="r,->r")
    before = tape.constant("before", [float(run["loss"]) for run in runs])
    after = tape.constant("after", [float(run["loss@1"]) for run in runs])
    fall = tape("fall", ops.subtract, before, after)
    tape.describe(rate, "r", "η", "learning rate")
    tape.describe(square, "", "‖dW_U‖²", "sum of the squares of the gradient")
    tape.describe(predicted, "r", "η ‖dW_U‖²", "fall of the loss that the gradient predicts")
    tape.describe(fall, "r", "ℒ − ℒ@1", "fall of the loss")
    return Trace(tape, {"model": "abcd"}, {"r": [f"{rate:g}" for rate in rates]})


def compare_losses(prompt: str, rates: Sequence[float]) -> Trace:
    """Returns the loss after each update at each rate, where the prompt is continued in more than one way."""
    prompts = [prompt] * len(CONTINUATIONS)
    runs = [train(prompts, CONTINUATIONS, rate, UPDATES).tape for rate in rates]
    tape = Tape()
    rate = tape.constant("rate", rates)
    losses = tape.constant("losses", [[float(run[f"loss@{k}"]) for k in range(UPDATES + 1)] for run in runs])
    tape.describe(rate, "r", "η", "learning rate")
    tape.describe(losses, "r n", "ℒ@n", "loss after n updates")
    return Trace(tape, {"model": "abcd"}, {"r": [f"{rate:g}" for rate in rates]})


def pictures() -> dict[str, Figure]:
    """Returns the probabilities before and after the update, and the loss at each rate."""
    runs = run()
    update, large = runs["update"], runs["large"]
    groups = {"before": (update, "probs[t=1]"), "after": (update, "probs@1[t=1]")}
    bars = draw_bars(groups, "p after B", "probability")
    losses = large.value("losses")
    series = [
        Series(LegendKey(f"rate {rate:g}", i, i), np.arange(UPDATES + 1.0), losses[i])
        for i, rate in enumerate(LARGE_RATES)
    ]
    x, y = Axis("update", 0, UPDATES, is_whole=True), Axis("loss", 0, float(np.ceil(losses.max())))
    return {
        "bars": make_figure("The probabilities before and after one update", bars),
        "rates": make_figure("The loss at three learning rates", Chart("loss over updates", x, y, series)),
    }


if __name__ == "__main__":
    print_example(run)

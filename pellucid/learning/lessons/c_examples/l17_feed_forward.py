"""Lesson 17: a feed-forward layer with a residual connection, the same without it, with every gate closed,
trained either way, and with its one step divided into smaller ones."""

import functools
from dataclasses import replace
from itertools import count

import numpy as np

import pellucid
from pellucid import ops
from pellucid.config import ModelConfig
from pellucid.explanation.trace import Trace
from pellucid.learning.lessons.pictures import draw_gates, draw_losses
from pellucid.learning.lessons.program import print_example, record_right, vary_tokens
from pellucid.model import Model
from pellucid.reference.ops.updates import global_norm
from pellucid.reference.tape import Tape
from pellucid.report.chart import LegendKey, Series
from pellucid.report.figure import Figure, make_figure

MODEL, FROZEN, TARGET = "example-5", ["embed.weight"], "C"
BATCH, TARGETS = ("A B", "A A", "B A"), ("C", "D", "C")
RATE, UPDATES = 0.5, 60
UP_BIAS, CLOSING_BIAS = "blocks.0.mlp.up_proj.bias", [-1.0, -4.0]
"""A bias of the up-projection with which every pre-activation of "A B" is negative."""
DIVISIONS = (1, 2, 4, 8, 64)


@functools.cache
def run(prompt: str = "A B", seed: int = 0) -> dict[str, Trace]:
    """Returns the runs of the lesson; the first is the one that the page and the sheet are about."""
    prompt, model = vary_tokens(prompt, seed), pellucid.load(MODEL)
    first = _record(model.trace(prompt, target=TARGET, update="sgd", lr=RATE, freeze=FROZEN))
    if seed:  # another example is for a sheet, which reads the first run alone
        return {"with": first}
    without = omit_residual(model)
    return {
        "with": first,
        "without": _record(without.trace(prompt, target=TARGET, backward=True)),
        "closed": _record(close_gates(model).trace(prompt, target=TARGET, backward=True)),
        "closed_without": _record(close_gates(without).trace(prompt, target=TARGET, backward=True)),
        "trained": train_batch(model),
        "trained_without": train_batch(without),
        "divided": divide_step(first),
    }


def omit_residual(model: Model) -> Model:
    """Returns the model with the same weights, in which a sub-layer's output replaces its input."""
    return model.replace(config=ModelConfig.from_dict({**model.config.to_dict(), "residual": "none"}))


def close_gates(model: Model) -> Model:
    """Returns the model with a bias that closes every gate."""
    return model.replace(weights={**model.weights, UP_BIAS: np.array(CLOSING_BIAS)})


def train_batch(model: Model) -> Trace:
    """Returns the training on the prompts of lesson 16, with the number of targets predicted, the number of
    open gates at their positions, and the entropy of their frequencies."""
    trace = model.trace(
        list(BATCH), target=list(TARGETS), update="sgd", lr=RATE, steps=UPDATES, freeze=FROZEN
    )
    tape = trace.tape
    for k in count():
        if f"blocks.0.mlp.up@{k}" not in tape:
            break
        gates = tape[f"blocks.0.mlp.up@{k}"][:, -1] > 0
        meaning = f"number of open gates at the last positions after {k} updates"
        tape.describe(tape.constant(f"open@{k}", int(gates.sum())), meaning=meaning)
    _, counts = np.unique(TARGETS, return_counts=True)
    shares = counts / counts.sum()
    entropy = tape.constant("entropy", -np.sum(shares * np.log(shares)))
    tape.describe(entropy, symbol="H", meaning="entropy of the frequencies of the targets")
    return record_right(trace)


def divide_step(first: Trace) -> Trace:
    """Returns the residual step of the feed-forward layer at the last position, as one step and as n steps
    of 1/n: BYn.x@k is the stream after k of them, and BYn.u@k the pre-activations there."""
    known, tape = first.tape, Tape()
    start = tape.constant("x", known["blocks.0.resid_mid"][0, -1])
    names = {"w1": "up_proj.weight", "b1": "up_proj.bias", "w2": "down_proj.weight", "b2": "down_proj.bias"}
    w1, b1, w2, b2 = (tape.constant(short, known[f"blocks.0.mlp.{full}"]) for short, full in names.items())
    for n in DIVISIONS:
        x = start
        for k in range(1, n + 1):
            u = tape(f"by{n}.u.{k - 1}", ops.einsum, x, w1, b1, spec="c,fc+f->f")
            a = tape(f"by{n}.a.{k - 1}", ops.relu, u)
            out = tape(f"by{n}.out.{k - 1}", ops.einsum, a, w2, b2, spec="f,cf+c->c")
            x = tape(f"by{n}.x.{k}", ops.scaled_sum, x, out, alpha=1 / n)
        tape.alias(f"by{n}.end", x)
    return Trace(tape, {"model": f"{MODEL}, its feed-forward layer in smaller steps"})


def _record(trace: Trace) -> Trace:
    """Adds the learning rate, and the norm of the gradient that reaches the embeddings."""
    tape = trace.tape
    tape.describe(tape.constant("rate", RATE), symbol="η", meaning="learning rate")
    norm = tape("gradient_norm", global_norm, tape.ref("d.embedded"))
    tape.describe(norm, symbol="‖dX_E‖", meaning="norm of the gradient that reaches the embeddings")
    return trace


def pictures() -> dict[str, Figure]:
    """Returns the pre-activations on the curve of the ReLU, and the loss with and without the residual
    connection."""
    runs = run(seed=0)
    chart = draw_losses({"with the residual": runs["trained"], "without": runs["trained_without"]})
    updates, entropy = np.arange(UPDATES + 1.0), float(runs["trained"].value("entropy"))
    flat = np.full(len(updates), entropy)
    level = Series(LegendKey("entropy of the targets", 2, 2), updates, flat, "level")
    return {
        "gates": make_figure(
            "Each position opens the gate that the other closes", draw_gates(runs["with"], "blocks.0.mlp.up")
        ),
        "curves": make_figure("Trained on three prompts", replace(chart, series=[*chart.series, level])),
    }


def numbers() -> dict[str, float]:
    """Returns the largest number of parts of a step."""
    return {"finest": max(DIVISIONS)}


if __name__ == "__main__":
    print_example(run)

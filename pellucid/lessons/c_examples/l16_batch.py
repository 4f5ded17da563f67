"""Lesson 16: three prompts trained as one batch, and the same one at a time, summed, slower and too fast."""

from collections.abc import Sequence

import numpy as np

import pellucid
from pellucid.explain.trace import Trace
from pellucid.figures.chart import Axis, Chart, LegendKey, PointLabel, Series
from pellucid.figures.figure import Figure, make_figure
from pellucid.lessons.accuracy import record_right
from pellucid.lessons.program import print_example, vary_tokens
from pellucid.reference.training import forward, join, train
from pellucid.workbench.model import Model

MODEL, FROZEN = "example-3", ["embed.weight"]
PROMPTS, TARGETS = ("A B", "A A", "B A"), ("C", "D", "C")
RATE, UPDATES = 0.5, 20
SLOW_RATE, SLOW_UPDATES = 0.1, 30
FAST_RATE, FAST_UPDATES = 2.0, 40
SINGLE_UPDATES = 75


def run(prompt: Sequence[str] = PROMPTS, seed: int = 0) -> dict[str, Trace]:
    """Returns the runs of the lesson; the first is the one that the page and the sheet are about."""
    prompt, model = [vary_tokens(words, seed) for words in prompt], pellucid.load(MODEL)
    return {
        "batch": train_batch(model, prompt, RATE, UPDATES),
        "single": train_singly(model, prompt, RATE, SINGLE_UPDATES),
        "gentle": train_singly(model, prompt, RATE / len(prompt), UPDATES),
        "summed": train_batch(model, prompt, RATE * len(prompt), UPDATES),
        "slow": train_batch(model, prompt, SLOW_RATE, SLOW_UPDATES),
        "fast": train_batch(model, prompt, FAST_RATE, FAST_UPDATES),
        "original": replace_with_tenths(model).trace(prompt, target=list(TARGETS)),
    }


def train_batch(model: Model, prompts: Sequence[str], rate: float, updates: int) -> Trace:
    """Returns the training on the mean loss of all prompts; the sum of the losses has the gradients of their
    mean times the number of prompts, so it is the same training at that many times the rate."""
    trace = model.trace(
        list(prompts), target=list(TARGETS), update="sgd", lr=rate, steps=updates, freeze=FROZEN
    )
    return _record(trace, rate)


def train_singly(model: Model, prompts: Sequence[str], rate: float, updates: int) -> Trace:
    """Returns the forward passes of the whole batch after each update, where an update reads one prompt: the
    first, the second, the third, and so on from the first again."""
    whole = model.trace(list(prompts), target=list(TARGETS))
    ids, targets = whole.tape["ids"], whole.tape["targets"]
    weights, passes = dict(model.weights), [whole.tape]
    for k in range(updates):
        b = [k % len(prompts)]
        last = train(model.config, weights, ids[b], targets[b], "sgd", 1, lr=rate, freeze=FROZEN)[-1]
        weights = {name: last[name] for name in weights}
        passes.append(forward(model.config, weights, ids, targets))
    return _record(Trace(join(passes), whole.run, whole.labels), rate)


def replace_with_tenths(model: Model) -> Model:
    """Returns the model with the weights of the worksheet from which the example descends."""
    tenth = 0.1 * np.eye(2)
    weights = {
        "embed.weight": np.array([[1.0, 0], [0, 1], [1, 1], [0, 0]]),
        **{f"blocks.0.attn.{name}_proj.weight": tenth for name in "qkv"},
        "unembed.weight": np.array([[0.1, 0], [0, 0], [0, 0.1], [0, 0]]),
    }
    return model.replace(weights=weights)


def _record(trace: Trace, rate: float) -> Trace:
    trace.tape.describe(trace.tape.constant("rate", rate), symbol="η", meaning="learning rate")
    return record_right(trace)


def pictures() -> dict[str, Figure]:
    """Returns the loss with the number of prompts that are right, and the loss at several rates."""
    runs = run()
    losses = {name: _read_losses(trace) for name, trace in runs.items()}
    right = [int(runs["batch"].value(f"right@{k}")) for k in range(UPDATES + 1)]
    changes = [k for k in range(UPDATES + 1) if k == 0 or right[k] != right[k - 1]]
    marks = [PointLabel(k, losses["batch"][k], f"{right[k]} of {len(PROMPTS)} right") for k in changes]
    updates, loss = Axis("updates", 0, UPDATES, is_whole=True), Axis("loss", 0, 2)
    curve = Series(LegendKey("loss of the batch"), np.arange(UPDATES + 1.0), losses["batch"], "points")
    rates = {
        f"mean, rate {RATE:g}": losses["batch"],
        f"sum, as rate {RATE * len(PROMPTS):g}": losses["summed"],
        f"mean, rate {SLOW_RATE:g}": losses["slow"],
        f"mean, rate {FAST_RATE:g}": losses["fast"],
    }
    series = [
        Series(LegendKey(name, i, i), np.arange(UPDATES + 1.0), np.where(y > loss.high, np.nan, y))
        for i, (name, y) in enumerate(rates.items())
    ]
    peak = PointLabel(3, losses["fast"][3], f"rate {FAST_RATE:g}", is_open=True)
    return {
        "loss": make_figure(
            "Three prompts in one batch", Chart("loss over updates", updates, loss, [curve], marks)
        ),
        "rates": make_figure(
            "The same training at other rates",
            Chart("loss over updates", updates, loss, series, [peak]),
            note=f"Where a curve is interrupted, the loss is above {loss.high:g}.",
        ),
    }


def _read_losses(trace: Trace) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Returns the loss after each of the first updates."""
    known = [f"loss@{k}" for k in range(UPDATES + 1) if f"loss@{k}" in trace.tape]
    return np.array([float(trace.value(name)) for name in known])


def numbers() -> dict[str, float]:
    """Returns the number of updates of the run that is never right."""
    return {"fast_updates": FAST_UPDATES}


if __name__ == "__main__":
    print_example(run)

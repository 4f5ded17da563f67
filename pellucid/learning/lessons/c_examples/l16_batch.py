"""Lesson 16: three prompts trained as one batch, and the same one at a time, summed, slower and too fast."""

import functools
from collections.abc import Sequence
from dataclasses import replace

import pellucid
from pellucid.explanation.trace import Trace
from pellucid.learning.lessons.c_examples.l13_forward import load_original
from pellucid.learning.lessons.pictures import draw_losses
from pellucid.learning.lessons.program import print_example, record_right, vary_tokens
from pellucid.model import Model
from pellucid.reference.training import forward, join, train
from pellucid.report.chart import PointLabel
from pellucid.report.figure import Figure, make_figure

MODEL, FROZEN = "example-3", ["embed.weight"]
PROMPTS, TARGETS = ("A B", "A A", "B A"), ("C", "D", "C")
RATE, UPDATES = 0.5, 20
SLOW_RATE, SLOW_UPDATES = 0.1, 30
FAST_RATE, FAST_UPDATES = 2.0, 40
SINGLE_UPDATES = 75
HIGHEST = 2.0
"""The largest loss in the picture of the rates."""


@functools.cache
def run(prompt: Sequence[str] = PROMPTS, seed: int = 0) -> dict[str, Trace]:
    """Returns the runs of the lesson; the first is the one that the page and the sheet are about."""
    prompt, model = [vary_tokens(words, seed) for words in prompt], pellucid.load(MODEL)
    first = {"batch": train_batch(model, prompt, RATE, UPDATES)}
    if seed:  # another example is for a sheet, which reads the first run alone
        return first
    return {
        **first,
        "single": train_singly(model, prompt, RATE, SINGLE_UPDATES),
        "gentle": train_singly(model, prompt, RATE / len(prompt), UPDATES),
        "summed": train_batch(model, prompt, RATE * len(prompt), UPDATES),
        "slow": train_batch(model, prompt, SLOW_RATE, SLOW_UPDATES),
        "fast": train_batch(model, prompt, FAST_RATE, FAST_UPDATES),
        "original": load_original().trace(prompt, target=list(TARGETS)),
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


def _record(trace: Trace, rate: float) -> Trace:
    trace.tape.describe(trace.tape.constant("rate", rate), symbol="η", meaning="learning rate")
    return record_right(trace)


def pictures() -> dict[str, Figure]:
    """Returns the loss with the number of prompts that are right, and the loss at several rates."""
    runs = run(seed=0)
    rates = {
        f"mean, rate {RATE:g}": runs["batch"],
        f"sum, as rate {RATE * len(PROMPTS):g}": runs["summed"],
        f"mean, rate {SLOW_RATE:g}": runs["slow"],
        f"mean, rate {FAST_RATE:g}": runs["fast"],
    }
    chart = draw_losses(rates, most=HIGHEST)
    # four curves have three dash patterns, so the last has its name beside it
    label = PointLabel(10, float(runs["fast"].value("loss@10")), f"rate {FAST_RATE:g}", is_open=True)
    until = slice(UPDATES + 1)
    curves = [replace(curve, x=curve.x[until], y=curve.y[until]) for curve in chart.series]
    shown = replace(chart, x=replace(chart.x, high=UPDATES), series=curves, marks=[label])
    return {
        "loss": make_figure("Three prompts in one batch", draw_losses({"loss of the batch": runs["batch"]})),
        "rates": make_figure(
            "The same training at other rates", shown, note=f"A loss above {HIGHEST:g} is not drawn."
        ),
    }


def numbers() -> dict[str, float]:
    """Returns the number of updates of the run that is never right."""
    return {"fast_updates": FAST_UPDATES}


if __name__ == "__main__":
    print_example(run)

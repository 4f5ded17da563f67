"""Lesson 19: two pre-norm blocks on "A B", one training step, training to the end, the same without one part,
and the cosines between what the model has made of its prompts."""

import functools

import numpy as np

import pellucid
from pellucid import ops
from pellucid.config import ModelConfig, preset
from pellucid.explanation.trace import Trace
from pellucid.learning.lessons.pictures import draw_grid, draw_losses, draw_stack
from pellucid.learning.lessons.program import print_example, record_right, vary_tokens
from pellucid.model import Model
from pellucid.reference.tape import Tape
from pellucid.report.diagram import Grid
from pellucid.report.figure import Figure, make_figure

MODEL, RATE, UPDATES = "example-6", 0.25, 40
TARGETS = {"A B": "C", "A A": "D", "B A": "C"}
"""What should follow each prompt."""
PARTS = ("mask", "positions", "residual")
"""Choices of the config that can be "none"."""


def run(prompt: str = "A B", seed: int = 0) -> dict[str, Trace]:
    """Returns the runs of the lesson; the first is the one that the page and its sheets are about."""
    model, prompt = pellucid.load(MODEL), vary_tokens(prompt, seed)
    step = model.trace(prompt, target=TARGETS.get(prompt, "C"), update="sgd", lr=RATE)
    step.tape.describe(step.tape.constant("rate", RATE), symbol="η", meaning="learning rate")
    return {
        "step": step,
        "trained": train_batch(),
        **{f"no_{part}": omit_part(model, part).trace(prompt) for part in PARTS},
        **{
            f"no_head_{block}_{head}": omit_head(model, block, head).trace(prompt)
            for block in range(model.config.n_layer)
            for head in range(model.config.n_head)
        },
        "before": compare_prompts(train_batch(), 0),
        "after": compare_prompts(train_batch(), UPDATES),
    }


@functools.cache
def train_batch() -> Trace:
    """Returns the training on the three prompts, with the number of targets predicted after each update."""
    batch, targets = list(TARGETS), list(TARGETS.values())
    trace = pellucid.trace(MODEL, batch, target=targets, update="sgd", lr=RATE, steps=UPDATES)
    return record_right(trace)


def omit_part(model: Model, part: str) -> Model:
    """Returns the model with the other weights as they are and one choice of the config set to "none"."""
    config = ModelConfig.from_dict({**model.config.to_dict(), part: "none"})
    return model.replace(config=config, weights={name: model.weights[name] for name in config.parameters()})


def omit_head(model: Model, block: int, head: int) -> Model:
    """Returns the model whose output projection reads zeros in place of one head."""
    name, width = f"blocks.{block}.attn.o_proj.weight", model.config.d_head
    weight = np.array(model.weights[name])
    weight[:, head * width : (head + 1) * width] = 0
    return model.replace(weights={**model.weights, name: weight})


def compare_prompts(trained: Trace, updates: int) -> Trace:
    """Returns the cosine between the last rows of final_norm.out of every two prompts after this number of
    updates."""
    rows = trained.tape[f"final_norm.out@{updates}"][:, -1]
    tape = Tape()
    x = tape.describe(tape.constant("rows", rows), "b c", "Y", "last row of each prompt after the final norm")
    square = tape("square", ops.einsum, x, x, spec="bc,bc->b")
    tape.describe(square, "b", "|Y|²", "square of the length of each row")
    inverse = tape("inverse", ops.power, square, exponent=-0.5)
    tape.describe(inverse, "b", "1/|Y|", "reciprocal of the length of each row")
    unit = tape.describe(
        tape("unit", ops.einsum, x, inverse, spec="bc,b->bc"), "b c", "U", "rows of length 1"
    )
    cosine = tape("cosine", ops.einsum, unit, unit, spec="bc,ac->ba")
    tape.describe(cosine, "b a", "cos", "cosine between two prompts' rows")
    labels = {axis: list(TARGETS) for axis in ("b", "a")}
    return Trace(tape, {"model": f"{MODEL} after {updates} updates"}, labels)


def numbers() -> dict[str, float]:
    """Returns the number of blocks and of updates."""
    return {"blocks": preset(MODEL).n_layer, "steps": UPDATES}


def pictures() -> dict[str, Figure]:
    """Returns the stream of B through both blocks, the patterns of the heads, the loss of the training, and
    the cosines before and after it."""
    runs = run()
    step, prompts = runs["step"], list(TARGETS)
    patterns = [
        draw_grid(step, f"blocks.{block}.attn.pattern[h={head}]", f"block {block}, head {head}")
        for block in (0, 1)
        for head in (0, 1)
    ]
    cosines = [
        Grid(title, runs[name].value("cosine"), prompts, prompts, scale="signed", decimals=2)
        for name, title in {"before": "before training", "after": f"after {UPDATES} updates"}.items()
    ]
    return {
        "stream": make_figure("What each layer adds to the stream", draw_stack(step, t=1)),
        "patterns": make_figure("Where each query looks", *patterns),
        "loss": make_figure("Three prompts, two blocks", draw_losses({"loss of the batch": runs["trained"]})),
        "cosines": make_figure("Cosines between the prompts after the final norm", *cosines),
    }


if __name__ == "__main__":
    print_example(run)

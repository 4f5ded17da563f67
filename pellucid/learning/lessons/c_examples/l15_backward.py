"""Lesson 15: gradients through attention on `example-3`, checked by a finite difference, and one update."""

import numpy as np

import pellucid
from pellucid import ops
from pellucid.explanation.trace import Trace
from pellucid.learning.lessons.c_examples.l13_forward import VALUES, load_original
from pellucid.learning.lessons.pictures import draw_graph
from pellucid.learning.lessons.program import print_example, vary_tokens
from pellucid.reference.op import Ref
from pellucid.reference.tape import Tape
from pellucid.report.figure import Figure, make_figure

TARGET = "C"
RATE = 0.5
FROZEN = "embed.weight"
MOVED, CELL = "blocks.0.attn.k_proj.weight", (1, 0)
"""The weight of the finite difference, W_K[0,1]: stored (out, in)."""
STEP = 0.001
MATRICES = {
    "W_Q": "blocks.0.attn.q_proj.weight",
    "W_K": "blocks.0.attn.k_proj.weight",
    "W_V": "blocks.0.attn.v_proj.weight",
    "W_U": "unembed.weight",
}
MINI = {
    "q": [[1, 0, 1], [0, 1, 1]],
    "k": [[1, 1, 0], [1, 0, 1]],
    "v": [[2, 0, 1], [1, 1, 0]],
}
MINI_GRADIENT = [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]


def run(prompt: str = "A B", seed: int = 0) -> dict[str, Trace]:
    """Returns the runs of the lesson; the first is the one that the page and the sheet are about."""
    prompt = vary_tokens(prompt, seed)
    model = pellucid.load("example-3")
    backward = model.trace(prompt, target=TARGET, update="sgd", lr=RATE, freeze=FROZEN)
    unembed_only = model.trace(prompt, target=TARGET, update="sgd", lr=RATE, only="unembed.weight")
    raised, lowered = (move_weight(prompt, by) for by in (STEP, -STEP))
    return {
        "backward": backward,
        "unembed_only": unembed_only,
        "raised": raised,
        "lowered": lowered,
        "difference": divide_difference(raised, lowered, backward),
        "jacobian": write_jacobian(backward),
        "sizes": measure_gradients(backward),
        "mini": run_mini(),
        "original": load_original().trace(prompt, target=TARGET, backward=True),
    }


def move_weight(prompt: str, by: float) -> Trace:
    """Returns the run of the model in which one weight is larger by this much."""
    model = pellucid.load("example-3")
    moved = np.array(model.weights[MOVED], dtype=np.float64)
    moved[CELL] += by
    return model.replace(weights={**model.weights, MOVED: moved}).trace(prompt, target=TARGET)


def divide_difference(raised: Trace, lowered: Trace, backward: Trace) -> Trace:
    """Returns the central difference (ℒ₊ − ℒ₋) / 2h beside the gradient of the same weight."""
    tape = Tape()
    tape.describe(tape.constant("step", STEP), "", "h", "how far the weight is moved")
    tape.constant("weight", backward.tape[MOVED][CELL])
    above = tape.describe(tape.constant("above", raised.tape["loss"]), "", "ℒ₊", "loss with W_K[0,1] + h")
    below = tape.describe(tape.constant("below", lowered.tape["loss"]), "", "ℒ₋", "loss with W_K[0,1] − h")
    gap = tape.describe(tape("gap", ops.subtract, above, below), "", "ℒ₊ − ℒ₋", "difference of the losses")
    quotient = tape("quotient", ops.einsum, gap, spec="->", scale=1 / (2 * STEP))
    tape.describe(quotient, "", "(ℒ₊ − ℒ₋) / 2h", "central difference")
    gradient = tape.constant("gradient", backward.tape[f"d.{MOVED}"][CELL])
    tape.describe(gradient, "", "dW_K[0,1]", "gradient by the backward pass")
    return Trace(tape, {"model": "example-3"})


def write_jacobian(backward: Trace) -> Trace:
    """Returns the softmax Jacobian of the last row, and dM as its product with dP."""
    tape = Tape()
    p = tape.constant("p", backward.tape["blocks.0.attn.pattern"][0, 0, -1])
    dp = tape.constant("dp", backward.tape["d.blocks.0.attn.pattern"][0, 0, -1])
    diagonal = tape("diagonal", ops.einsum, p, tape.constant("same", np.eye(p.shape[0])), spec="i,ij->ij")
    outer = tape("outer", ops.einsum, p, p, spec="i,j->ij")
    jacobian = tape("jacobian", ops.subtract, diagonal, outer)
    ds = tape("ds", ops.einsum, dp, jacobian, spec="i,ij->j")
    labels = {"i": backward.labels["s"], "j": backward.labels["s"]}
    tape.describe(p, "i", "P", "shares of the last query")
    tape.describe(dp, "i", "dP", "gradient of the shares")
    tape.describe(jacobian, "i j", "J", "softmax Jacobian: how share i answers score j")
    tape.describe(ds, "j", "dM", "gradient of the scores")
    return Trace(tape, {"model": "example-3"}, labels)


def measure_gradients(backward: Trace) -> Trace:
    """Returns the norm of the gradient of each matrix, and the fall of the loss that they predict."""
    tape, squares = Tape(), list[Ref]()
    for symbol, name in MATRICES.items():
        g = tape.constant(f"d{symbol}", backward.tape[f"d.{name}"])
        squares.append(tape(f"square_{symbol}", ops.einsum, g, g, spec="ij,ij->"))
        norm = tape(f"norm_{symbol}", ops.power, squares[-1], exponent=0.5)
        tape.describe(norm, "", f"‖d{symbol}‖", f"norm of the gradient of {symbol}")
    predicted = tape("predicted", ops.einsum, tape("total", ops.add, *squares), spec="->", scale=RATE)
    tape.describe(predicted, "", "η ‖g‖²", "fall of the loss that the gradients predict")
    before, after = (tape.constant(name, backward.tape[name]) for name in ("loss", "loss@1"))
    tape.describe(tape("fall", ops.subtract, before, after), "", "ℒ − ℒ@1", "fall of the loss")
    return Trace(tape, {"model": "example-3"})


def run_mini() -> Trace:
    """Returns attention with three channels and no mask, and its gradients for a given output gradient.

    The loss is Σ O · G, whose gradient with respect to O is G."""
    tape = Tape()
    q, k, v = (tape.parameter(name, value) for name, value in MINI.items())
    scores = tape("scores", ops.einsum, q, k, spec="td,sd->ts", scale=q.shape[-1] ** -0.5)
    pattern = tape("pattern", ops.softmax, scores)
    out = tape("o", ops.einsum, pattern, v, spec="ts,sd->td")
    given = tape.constant("given", MINI_GRADIENT)
    loss = tape("loss", ops.einsum, out, given, spec="td,td->")
    for ref, axes, symbol, meaning in (
        (q, "t d", "Q", "queries"),
        (k, "s d", "K", "keys"),
        (v, "s d", "V", "values"),
        (scores, "t s", "S", "attention scores: query · key / √D"),
        (pattern, "t s", "P", "attention pattern: no mask"),
        (out, "t d", "O", "head outputs"),
        (given, "t d", "G", "gradient of the output, given"),
        (loss, "", "ℒ", "loss"),
    ):
        tape.describe(ref, axes, symbol, meaning)
    tape.backward(loss)
    return Trace(tape, {"model": "attention with three channels"})


def numbers() -> dict[str, float]:
    """Returns the learning rate."""
    return {"rate": RATE}


def pictures() -> dict[str, Figure]:
    """Returns the forward pass with the gradient below each value."""
    graph = draw_graph(run()["backward"], VALUES, "each value, and below it its gradient")
    return {"graph": make_figure("Forward, and the gradients backward", graph)}


if __name__ == "__main__":
    print_example(run)

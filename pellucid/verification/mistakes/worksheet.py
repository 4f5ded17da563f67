"""The mistakes that worksheets name: each with its kind and one sentence for the learner.

    W   a wrong step: the step's own arithmetic with something changed (`wrong` yields it)
    V   another value in the place of the right one (`wrong` yields the step that reads it)
    R   a rewritten rule (`slips.py`, `wrong_rules.py`), so `wrong` is None

Names of `MISTAKES` are the same mistakes; a wrong program of `MISTAKES` is found in a recorded run, a mistake
of this table in one box.
"""

from dataclasses import dataclass

from pellucid.verification.mistakes import (
    attention,
    norms,
    positions,
    products,
    updates,
)
from pellucid.verification.mistakes.catalogue import MISTAKES
from pellucid.verification.mistakes.variant import Mistake


@dataclass(frozen=True)
class SheetMistake:
    """A mistake in one box: its kind, what it is in one sentence, and the wrong program for W and V."""

    kind: str
    explanation: str
    wrong: Mistake | None = None


SHEET_MISTAKES: dict[str, SheetMistake] = {
    # ---- the scale of a product
    "scores without 1/√D": SheetMistake("W", "1/√D is missing: the scores were not divided by √D.",
        attention.rescale_in_step(lambda head, stream: 1.0)),
    "scores with 1/D": SheetMistake("W", "The scores were divided by D; they are divided by its root, √D.",
        attention.rescale_in_step(lambda head, stream: 1 / head)),
    "scores multiplied by √D": SheetMistake("W", "The scores were multiplied by √D; they are divided by it.",
        attention.rescale_in_step(lambda head, stream: head**0.5)),
    "scores with 1/√C": SheetMistake("W",
        "The scores were divided by the root of the model's width; √D is the root of the head's width.",
        attention.rescale_in_step(lambda head, stream: stream**-0.5)),
    "scale omitted": SheetMistake("W", "The constant factor of the product, such as 1/√D, is missing.",
        products.change_factor(lambda scale: 1.0)),
    "scale squared": SheetMistake("W", "The constant factor of the product was applied twice.",
        products.change_factor(lambda scale: scale * abs(scale))),
    "divided by the scale": SheetMistake("W",
        "The product was divided by its constant factor; it is multiplied by it.",
        products.change_factor(lambda scale: 1 / scale)),
    "sum instead of mean": SheetMistake("W", "The sum was not divided by the number of its terms.",
        products.sum_for_mean),
    # ---- products
    "matrix transposed": SheetMistake("W", "Rows and columns of the matrix were swapped.",
        MISTAKES["matrix transposed"]),
    "gradient of the matrix transposed": SheetMistake("W",
        "This is the gradient's cell with row and column swapped.", products.transpose_gradient),
    "biases omitted": SheetMistake("W", "The bias was not added.", MISTAKES["biases omitted"]),
    "first term of the sum missing": SheetMistake("W", "The first branch of the sum is missing.",
        MISTAKES["first term of the sum missing"]),
    "last term of the sum missing": SheetMistake("W", "The last branch of the sum is missing.",
        MISTAKES["last term of the sum missing"]),
    # ---- attention
    "K, Q or V swapped": SheetMistake("V", "One of queries, keys and values was read for another.",
        attention.read_other_projection),
    "W_Q, W_K or W_V swapped": SheetMistake("V", "The matrix of another projection was used.",
        attention.read_other_weights),
    "last query's row for every query": SheetMistake("W",
        "The last query's row of the pattern was used for every query: all rows were taken as equal.",
        attention.repeat_last_row),
    "transpose omitted": SheetMistake("W",
        "The pattern was not transposed: a gradient of keys or values sums over the queries.",
        attention.omit_transpose),
    "no mask": SheetMistake("W", "The mask is missing: a query must not see the keys after its own position.",
        attention.omit_mask_in_softmax),
    "mask one token ahead": SheetMistake("W", "Each query saw one key too many: the one after it.",
        attention.shift_mask_in_softmax),
    "mask after the softmax": SheetMistake("W",
        "The softmax ran over the masked scores too: mask first, so that the row sums to 1.",
        attention.mask_after_softmax),
    "query head h on key/value head h % K": SheetMistake("W",
        "Query head h reads key head h // (H / K): neighboring query heads share one.",
        MISTAKES["query head h on key/value head h % K"]),
    "channels split across heads": SheetMistake("W",
        "Each head has D adjacent channels, not every H-th channel.", attention.interleave_channels),
    # ---- softmax
    "softmax over the queries": SheetMistake("W",
        "The softmax was taken down the column; it runs along the row, over the keys of one query.",
        attention.sum_over_queries),
    "softmax gradient without Σ p·dp": SheetMistake("W",
        "The sum of p · dp over the row was not subtracted from dp.", attention.omit_sum_in_gradient),
    "only the diagonal of the softmax's Jacobian": SheetMistake("W",
        "p (1 - p) is the derivative by the cell's own score alone; the others of the row count too.",
        attention.keep_diagonal_of_jacobian),
    "e^ omitted": SheetMistake("R", "The exponential e^x was not taken."),
    "power of 10 for e": SheetMistake("R", "10^x was taken for e^x."),
    "not divided by the sum": SheetMistake("R", "The division by the sum is missing."),
    # ---- norms
    "variance divided by N − 1": SheetMistake("W",
        "The sum of squares was divided by N - 1; the norm divides it by N.",
        MISTAKES["variance divided by N − 1"]),
    "eps outside the root": SheetMistake("W", "eps was added after the root; it stands under the root.",
        MISTAKES["eps outside the root"]),
    "norm eps": SheetMistake("W", "Another eps was used.", MISTAKES["norm eps"]),
    "norm gain read as 1 + γ": SheetMistake("W", "The row was multiplied by 1 + γ; the gain is γ itself.",
        MISTAKES["norm gain read as 1 + γ"]),
    "mean not subtracted": SheetMistake("V", "The row's mean was not subtracted.", norms.keep_mean),
    "norm omitted": SheetMistake("V", "The row before its norm was read; this step reads it after the norm.",
        norms.read_before_norm),
    "root omitted": SheetMistake("R", "The root was not taken."),
    "reciprocal omitted": SheetMistake("R", "The reciprocal 1/x was not taken."),
    "power omitted": SheetMistake("R", "The power was not taken: x stands for x² or x³."),
    # ---- the MLP
    "activation omitted": SheetMistake("V", "The value before the activation was taken for the one after it.",
        products.omit_activation),
    "activation": SheetMistake("W", "Another activation was used.", MISTAKES["activation"]),
    "activation's derivative omitted": SheetMistake("W",
        "The gradient was passed on unchanged; where the ReLU's gate is closed it is 0.",
        products.omit_derivative),
    "activation for its derivative": SheetMistake("W",
        "The gradient was multiplied by the activation; it is multiplied by the activation's derivative.",
        products.use_activation_as_derivative),
    "gate and up swapped": SheetMistake("W", "The gate and the up-projection were swapped.",
        MISTAKES["gate and up swapped"]),
    # ---- the loss
    "logarithm to base 10": SheetMistake("R", "The logarithm to base 10 was taken; ln has the base e."),
    "another token's probability": SheetMistake("R",
        "The probability of another token was read; the loss reads the target's."),
    "1 at the target omitted": SheetMistake("R",
        "At the target the gradient is p - 1; the 1 was not subtracted."),
    "1 subtracted at every token": SheetMistake("R",
        "1 is subtracted at the target alone; elsewhere the gradient is p."),
    "1/n of the mean loss omitted": SheetMistake("W",
        "The loss is a mean over n targets, so each receives 1/n of the gradient.",
        updates.omit_share_of_mean_loss),
    "2 of the squared error omitted": SheetMistake("W", "The derivative of a square is 2x: the 2 is missing.",
        updates.omit_two_of_squared_error),
    "label smoothing without its uniform part": SheetMistake("W",
        "The share α of the uniform distribution is missing.", updates.omit_uniform_part),
    # ---- updates
    "gradient ascent instead of descent": SheetMistake("W",
        "The gradient was added to the weight; descent subtracts it.",
        MISTAKES["gradient ascent instead of descent"]),
    "learning rate omitted": SheetMistake("W", "The gradient was not multiplied by the learning rate.",
        updates.omit_learning_rate),
    "weight before the update": SheetMistake("V", "The weight from before the update was used.",
        updates.read_weight_before_update),
    "bias correction omitted": SheetMistake("W",
        "Adam's moments start at 0: m and v are divided by 1 - β^t first.", updates.omit_bias_correction),
    "root of Adam omitted": SheetMistake("W", "Adam divides by the root of the second moment, √v.",
        updates.omit_root),
    "weight decay in the gradient": SheetMistake("W",
        "AdamW subtracts the decay from the weight itself; it does not enter the moments.",
        updates.decay_in_gradient),
    "momentum accumulated instead of averaged": SheetMistake("W",
        "The gradient enters the moment with 1 - β, not whole.", updates.accumulate_for_average),
    "momentum averaged instead of accumulated": SheetMistake("W",
        "The gradient enters this momentum whole, not with 1 - β.", updates.average_for_accumulate),
    "clipping omitted": SheetMistake("V", "The gradient before clipping was used.", updates.omit_clipping),
    "gradient clipped by its own norm": SheetMistake("W",
        "The gradient was clipped by its own norm; the limit holds for all gradients as one vector.",
        updates.clip_by_own_norm),
    # ---- positions
    "RoPE rotated the other way": SheetMistake("W", "The pair was rotated by the opposite angle.",
        MISTAKES["RoPE rotated the other way"]),
    "RoPE layout": SheetMistake("W", "Other channels were paired: halves or neighbors, by the layout.",
        MISTAKES["RoPE layout"]),
    "degrees for radians": SheetMistake("W", "The angle is in radians; it was read as degrees.",
        positions.rotate_by_degrees),
    "learned positions counted from 1": SheetMistake("W", "Positions are counted from 0.",
        MISTAKES["learned positions counted from 1"]),
    "position bias omitted": SheetMistake("W", "The position bias was not added to the scores.",
        MISTAKES["position bias omitted"]),
    # ---- any rule
    "factor of a product missing": SheetMistake("R",
        "A factor was copied instead of multiplied: another factor of the product is missing."),
    "sign lost": SheetMistake("R", "The number is right but for its sign."),
    "added instead of subtracted": SheetMistake("R", "A term was added; it is subtracted."),
    "branches swapped": SheetMistake("R", "The condition was read the other way round."),
    "term of the sum missing": SheetMistake("R", "A term of the sum is missing."),
    "neighboring cell": SheetMistake("V", "This is the number of a neighboring cell."),
    "step skipped": SheetMistake("V",
        "This is the number that the step reads: the step itself was not done."),
}  # fmt: skip


def resolve_mistake(name: str) -> str:
    """Returns the catalogue's name of a mistake: of "activation: gelu for relu" the part before the note."""
    return name.partition(": ")[0]


def explain_mistake(name: str) -> str:
    """Returns one sentence about a mistake for the learner; empty where the catalogue does not have it."""
    entry = SHEET_MISTAKES.get(resolve_mistake(name))
    return entry.explanation if entry else ""
